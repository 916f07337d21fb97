//! One priority level: its queues, and what they have been served.

use std::collections::VecDeque;

use super::holders::Holders;
use super::timing::Use;
use super::{Demand, LevelSpec, Queuing, Sender};

/// Assumed duration of a running request, in seconds. As upstream.
pub(super) const GUESS: f64 = 0.003;
/// Largest hand of queues: the hash of a flow has 64 bits, and each card takes at least one of them.
const MOST_CARDS: usize = 64;

pub(super) struct Waiting {
    pub(super) ticket: u64,
    pub(super) sender: Sender,
    pub(super) seats: usize,
}

/// The waiting request whose turn it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Next {
    pub(super) queue: usize,
    /// Its place in the queue.
    pub(super) place: usize,
    /// The seats that it gets.
    pub(super) seats: usize,
}

#[derive(Default)]
pub(super) struct Queue {
    pub(super) waiting: VecDeque<Waiting>,
    pub(super) waiting_seats: usize,
    pub(super) executing: usize,
    pub(super) executing_seats: usize,
    /// Virtual time at which its next request starts.
    pub(super) next: f64,
    /// That of the last one that started.
    pub(super) began: f64,
}

/// The least and the greatest of several numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Bounds {
    fn of(numbers: impl Iterator<Item = f64>) -> Option<Self> {
        numbers.fold(None, |bounds: Option<Self>, number| {
            let bounds = bounds.unwrap_or(Bounds {
                min: number,
                max: number,
            });
            Some(Bounds {
                min: bounds.min.min(number),
                max: bounds.max.max(number),
            })
        })
    }
}

/// The virtual time of a level, in seat-seconds (`R` and `S` of KEP-1040).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fair {
    /// The virtual time.
    pub now: f64,
    /// The virtual time when a request started last, and that at which it was to start.
    pub dispatched: Option<(f64, f64)>,
    /// When the first requests of the queues are to start.
    pub next: Option<Bounds>,
    /// The same, less the work that their queues are thought to have in progress.
    pub discounted: Option<Bounds>,
}

impl Queue {
    pub(super) fn is_active(&self) -> bool {
        !self.waiting.is_empty() || self.executing > 0
    }

    /// One of its requests starts.
    pub(super) fn run(&mut self, seats: usize) {
        self.executing += 1;
        self.executing_seats += seats;
        self.began = self.next;
        self.next += seats as f64 * GUESS;
    }
}

pub(super) struct Level {
    pub(super) spec: LevelSpec,
    pub(super) used: usize,
    pub(super) executing: usize,
    pub(super) waiting: usize,
    pub(super) waiting_seats: usize,
    pub(super) queues: Vec<Queue>,
    pub(super) holders: Holders,
    pub(super) usage: Use,
    pub(super) demand: Demand,
    /// As in [`Fair`].
    dispatched: Option<(f64, f64)>,
    pub(super) active_queues: usize,
    /// Work that each active queue would have been served if all of them were served at the same time.
    pub(super) virtual_time: f64,
    pub(super) synced: f64,
    /// Where the search for the next queue starts.
    pub(super) robin: usize,
}

impl Level {
    pub(super) fn new(spec: LevelSpec) -> Self {
        let mut level = Level {
            spec,
            used: 0,
            executing: 0,
            waiting: 0,
            waiting_seats: 0,
            queues: Vec::new(),
            holders: Holders::default(),
            usage: Use::default(),
            demand: Demand::default(),
            dispatched: None,
            active_queues: 0,
            virtual_time: 0.0,
            synced: 0.0,
            robin: 0,
        };
        level.grow();
        level
    }

    /// Adds queues up to the configured number; surplus queues stay until they are empty.
    pub(super) fn grow(&mut self) {
        let wanted = self.spec.queuing.map_or(0, |it| it.queues);
        if self.queues.len() < wanted {
            self.queues.resize_with(wanted, Queue::default);
        }
    }

    /// Seats that are reserved for the level although they are unused.
    pub(super) fn kept(&self, used: usize) -> usize {
        (self.spec.nominal - self.spec.lendable).saturating_sub(used)
    }

    /// Advances the virtual time.
    pub(super) fn sync(&mut self, now: f64) {
        let passed = (now - self.synced).max(0.0);
        self.synced = now;
        let seats = (self.used, self.waiting_seats);
        let requests = (self.executing, self.waiting);
        self.demand.pass(passed, (seats.0 + seats.1) as f64);
        note_use(&mut self.usage, &self.spec, passed, seats, requests);
        if self.active_queues > 0 {
            let served = (self.used + self.waiting_seats).min(self.spec.nominal.max(1));
            self.virtual_time += passed * served as f64 / self.active_queues as f64;
        }
    }

    /// A request of this queue has started.
    pub(super) fn note_dispatch(&mut self, index: usize) {
        self.dispatched = Some((self.virtual_time, self.queues[index].began));
    }

    /// Its virtual time at the moment.
    pub(super) fn fair(&self) -> Fair {
        let waiting = self.queues.iter().filter(|it| !it.waiting.is_empty());
        let discounted = |it: &Queue| it.next - it.executing_seats as f64 * GUESS;
        Fair {
            now: self.virtual_time,
            dispatched: self.dispatched,
            next: Bounds::of(waiting.clone().map(|it| it.next)),
            discounted: Bounds::of(waiting.map(discounted)),
        }
    }

    /// The ticket of a waiting request.
    pub(super) fn ticket(&self, next: Next) -> Option<u64> {
        let waiting = self.queues.get(next.queue)?.waiting.get(next.place)?;
        Some(waiting.ticket)
    }

    /// The emptiest of the queues that a flow may use.
    pub(super) fn deal(&self, queuing: Queuing, mut flow: u64) -> usize {
        let decks = queuing.queues.max(1);
        let hand = queuing.hand.clamp(1, decks.min(MOST_CARDS));
        let mut remainders = [0; MOST_CARDS];
        let mut best = (usize::MAX, 0);
        for dealt in 0..hand {
            let left = (decks - dealt) as u64;
            remainders[dealt] = usize::try_from(flow % left).unwrap_or_default();
            flow /= left;
            // The remainder numbers the cards that have not been dealt.
            let mut card = remainders[dealt];
            for known in remainders[..dealt].iter().rev() {
                card += usize::from(*known <= card);
            }
            let queue = &self.queues[card];
            // Of equally empty queues the first that was dealt: the lowest number would make some queues serve more
            // flows.
            let load = queue.waiting_seats + queue.executing_seats;
            if load < best.0 {
                best = (load, card);
            }
        }
        best.1
    }

    pub(super) fn change_queue(&mut self, index: usize, change: impl FnOnce(&mut Queue)) {
        let queue = &mut self.queues[index];
        let before = queue.is_active();
        if !before {
            // A queue that was empty has no credit from the time before.
            queue.next = queue.next.max(self.virtual_time);
        }
        change(queue);
        let after = queue.is_active();
        self.active_queues = self.active_queues + usize::from(after) - usize::from(before);
    }

    pub(super) fn enqueue(&mut self, index: usize, waiting: Waiting) {
        self.waiting += 1;
        self.waiting_seats += waiting.seats;
        self.holders.wait(waiting.sender);
        self.change_queue(index, |queue| {
            queue.waiting_seats += waiting.seats;
            queue.waiting.push_back(waiting);
        });
    }

    /// A request leaves a queue; `change` is what becomes of the queue at the same moment.
    pub(super) fn leave(
        &mut self,
        index: usize,
        place: usize,
        change: impl FnOnce(&mut Queue),
    ) -> Option<Waiting> {
        let mut gone = None;
        self.change_queue(index, |queue| {
            gone = queue.waiting.remove(place);
            if let Some(gone) = &gone {
                queue.waiting_seats -= gone.seats;
                change(queue);
            }
        });
        let gone = gone?;
        self.waiting -= 1;
        self.waiting_seats -= gone.seats;
        self.holders.leave(gone.sender);
        Some(gone)
    }

    /// A request of this sender may take some of `free` seats.
    pub(super) fn may_start(&self, sender: Sender, free: usize) -> bool {
        let free = free.saturating_sub(self.spec.widest());
        self.holders.may_start(sender, free)
    }

    /// The number of waiting requests that may start as soon as it is their turn.
    pub(super) fn ready(&self, free: usize) -> usize {
        if self.waiting == 0 {
            return 0;
        }
        let free = free.saturating_sub(self.spec.widest());
        self.waiting - self.holders.held_back(free)
    }

    /// The request that would finish first of those that may start and are the first of these in their queue.
    pub(super) fn first(&self, free: usize) -> Option<Next> {
        if self.ready(free) == 0 {
            return None;
        }
        let count = self.queues.len();
        // The level may have become smaller since a request arrived.
        let most = self.spec.nominal.max(1);
        let mut best: Option<(f64, Next)> = None;
        for offset in 0..count {
            let index = (self.robin + offset) % count;
            let queue = &self.queues[index];
            let mut waiting = queue.waiting.iter();
            let Some(place) = waiting.position(|it| self.may_start(it.sender, free)) else {
                continue;
            };
            let first = &queue.waiting[place];
            let finish = queue.next + first.seats as f64 * GUESS;
            if best.is_none_or(|(least, _)| finish < least) {
                let seats = first.seats.min(most);
                let next = Next {
                    queue: index,
                    place,
                    seats,
                };
                best = Some((finish, next));
            }
        }
        best.map(|(_, next)| next)
    }

    /// The ticket of the request that is next by virtual time, whether it may start or not.
    pub(super) fn head(&self) -> Option<u64> {
        let queues = self.queues.iter();
        let heads = queues.filter_map(|it| Some((it.next, it.waiting.front()?.ticket)));
        let next = heads.min_by(|a, b| a.0.total_cmp(&b.0));
        next.map(|(_, ticket)| ticket)
    }

    /// Seats that it may use at most.
    pub(super) fn most(&self) -> usize {
        self.spec.nominal.saturating_add(self.spec.borrowable)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.executing == 0 && self.waiting == 0
    }
}

/// A level has been used like this for some time: seats, and requests, that run and wait.
pub(in crate::flow) fn note_use(
    usage: &mut Use,
    spec: &LevelSpec,
    seconds: f64,
    (used, wanted): (usize, usize),
    (executing, waiting): (usize, usize),
) {
    let part = |of: usize, all: usize| of as f64 / all.max(1) as f64;
    let seats = spec.nominal;
    usage.seats.pass(seconds, part(used, seats.max(used)));
    usage.executing.pass(seconds, part(executing, seats));
    usage.waiting.pass(seconds, part(waiting, spec.places()));
    usage.demand.pass(seconds, part(used + wanted, seats));
}
