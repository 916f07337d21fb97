//! The users that hold the seats of a level: one busy user leaves some of them to others.
//!
//! Upstream lets one flow take all seats of a level. Fair queues decide then which flow is next, but a short request waits until
//! one of the running ones ends: if they are large lists that share the processors, all of them end late. Here a user
//! gets another seat only as long as enough of them stay free, as a switch shares its buffers between ports (dynamic
//! thresholds, Choudhury and Hahne 1998): one busy user leaves a quarter of the seats, two leave a seventh. A user
//! that has none gets the first free one.

use rustc_hash::FxHashMap;

use super::Sender;

/// A user has at most so many times the seats that stay free.
const TIMES_FREE: usize = 3;
/// The service accounts of one namespace together have at most so many times the seats that stay free: a client that may
/// create one may create many.
const OWNER_TIMES_FREE: usize = 7;

/// A user that has seats or waits for some.
struct Holder {
    owner: u64,
    used: usize,
    waiting: usize,
}

/// The users of one level.
#[derive(Default)]
pub(super) struct Holders {
    users: FxHashMap<u64, Holder>,
    /// Seats in use.
    owners: FxHashMap<u64, usize>,
}

fn within(used: usize, times: usize, free: usize) -> bool {
    used == 0 || used < free.saturating_mul(times)
}

impl Holders {
    fn allows(&self, owner: u64, used: usize, free: usize) -> bool {
        let together = self.owners.get(&owner).copied().unwrap_or(0);
        within(used, TIMES_FREE, free) && within(together, OWNER_TIMES_FREE, free)
    }

    /// A user may have more seats, if so many are free after its largest request.
    pub(super) fn may_start(&self, sender: Sender, free: usize) -> bool {
        let used = self.users.get(&sender.user).map_or(0, |it| it.used);
        self.allows(sender.owner, used, free)
    }

    /// How many of the waiting requests may not start, whatever their turn.
    pub(super) fn held_back(&self, free: usize) -> usize {
        let users = self.users.values();
        users
            .filter(|it| it.waiting > 0 && !self.allows(it.owner, it.used, free))
            .map(|it| it.waiting)
            .sum()
    }

    fn user(&mut self, sender: Sender) -> &mut Holder {
        self.users.entry(sender.user).or_insert(Holder {
            owner: sender.owner,
            used: 0,
            waiting: 0,
        })
    }

    fn forget_idle(&mut self, sender: Sender) {
        let user = self.users.get(&sender.user);
        if user.is_some_and(|it| it.used == 0 && it.waiting == 0) {
            self.users.remove(&sender.user);
        }
        if self.owners.get(&sender.owner) == Some(&0) {
            self.owners.remove(&sender.owner);
        }
    }

    /// A request begins to wait.
    pub(super) fn wait(&mut self, sender: Sender) {
        self.user(sender).waiting += 1;
    }

    /// A request waits no longer.
    pub(super) fn leave(&mut self, sender: Sender) {
        self.user(sender).waiting -= 1;
        self.forget_idle(sender);
    }

    /// A request gets seats.
    pub(super) fn take(&mut self, sender: Sender, seats: usize) {
        self.user(sender).used += seats;
        *self.owners.entry(sender.owner).or_default() += seats;
    }

    /// A request gives its seats back.
    pub(super) fn give_back(&mut self, sender: Sender, seats: usize) {
        self.user(sender).used -= seats;
        if let Some(together) = self.owners.get_mut(&sender.owner) {
            *together -= seats;
        }
        self.forget_idle(sender);
    }

    /// Seats in use and waiting requests.
    #[cfg(test)]
    pub(super) fn sums(&self) -> (usize, usize) {
        let owners: usize = self.owners.values().sum();
        let users = self.users.values().fold((0, 0), |(used, waiting), it| {
            (used + it.used, waiting + it.waiting)
        });
        assert_eq!(users.0, owners);
        users
    }
}
