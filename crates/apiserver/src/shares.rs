//! Limits on what each user may hold at the same time, so that no user takes everything.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::Result;
use crate::identity::{MASTERS, SERVICE_ACCOUNT_PREFIX, User};
use crate::limits::too_many_requests;
use crate::request::Incoming;

/// The part of everything that one owner may have.
pub(crate) const PART: usize = 4;

/// Whose share something is: the user, or the namespace of a service account. A user that may create service accounts
/// has as many as it likes, all of them in a few namespaces.
pub(crate) fn owner(user: &User) -> &str {
    let name = user.name.as_str();
    let account = name.strip_prefix(SERVICE_ACCOUNT_PREFIX);
    match account.and_then(|account| account.split_once(':')) {
        Some((_, account)) => &name[..name.len() - account.len()],
        None => name,
    }
}

/// As much of a number as one owner may have, at least one.
pub(crate) fn part_of(all: usize) -> usize {
    (all / PART).max(1)
}

/// A bound on what all users have, and on the share of each.
pub(crate) struct Shares {
    all: usize,
    taken: Mutex<HashMap<Arc<str>, usize>>,
}

/// A unit of a user's limit, which counts until it is dropped.
pub(crate) struct Share {
    of: Arc<Shares>,
    owner: Arc<str>,
}

impl Shares {
    /// So many in all.
    pub fn new(all: usize) -> Arc<Self> {
        Arc::new(Shares {
            all,
            taken: Mutex::default(),
        })
    }

    /// One more for a user; `None` if the user, or all together, have as many as they may.
    pub fn take(self: &Arc<Self>, user: &User) -> Option<Share> {
        let owner = owner(user);
        let mut taken = self.taken.lock();
        let own = taken.get(owner).copied().unwrap_or(0);
        let all: usize = taken.values().sum();
        if own >= part_of(self.all) || all >= self.all {
            return None;
        }
        let owner: Arc<str> = owner.into();
        taken.insert(owner.clone(), own + 1);
        let of = self.clone();
        Some(Share { of, owner })
    }

    /// One more for the user of a request; `None` for users that flow control exempts: members of `system:masters`, and
    /// the components of this process.
    ///
    /// # Errors
    /// 429 if the user, or all together, have as many as they may.
    pub fn of(self: &Arc<Self>, request: &Incoming) -> Result<Option<Share>> {
        if request.in_process || request.user.in_group(MASTERS) {
            return Ok(None);
        }
        let share = self.take(&request.user);
        share.map(Some).ok_or_else(too_many_requests)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = self.of.taken.lock();
        if let Some(own) = taken.get_mut(&self.owner) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> User {
        User::new(name, ["people"])
    }

    #[test]
    fn one_owner_has_a_part() {
        let shares = Shares::new(8);
        let first = shares.take(&user("system:serviceaccount:a:one")).unwrap();
        let second = shares.take(&user("system:serviceaccount:a:two")).unwrap();
        assert!(
            shares
                .take(&user("system:serviceaccount:a:three"))
                .is_none()
        );
        let other = shares.take(&user("system:serviceaccount:b:one")).unwrap();
        drop(first);
        let third = shares.take(&user("system:serviceaccount:a:three"));
        assert!(third.is_some());
        drop((second, third, other));
        assert!(shares.taken.lock().is_empty());
    }

    #[test]
    fn all_together_are_bounded() {
        let shares = Shares::new(4);
        let names = ["a", "b", "c", "d", "e"];
        let taken: Vec<_> = names.iter().map(|it| shares.take(&user(it))).collect();
        let given: Vec<bool> = taken.iter().map(Option::is_some).collect();
        assert_eq!(given, [true, true, true, true, false]);
    }
}
