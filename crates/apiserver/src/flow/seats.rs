//! Seats and queues: which request starts, waits or is rejected. A pure state machine: time and requests are inputs,
//! decisions are outputs.
//!
//! The model is that of kube-apiserver's priority and fairness (KEP-1040). Each level has a number of seats and, unless
//! it rejects requests that do not fit, queues. The requests of a flow go to the emptiest of a hand of queues (shuffle
//! sharding), and the queue that is served next is the one whose first request would finish first if all queues were
//! served at the same time.
//!
//! Borrowing differs from upstream, which moves limits between levels every ten seconds by past demand. Here a level
//! may use seats beyond its own while their owners do not need them: seats that a level does not lend are kept free for
//! it, and a request within the seats of its own level comes before those that borrow. And no user takes all seats of a
//! level ([`holders`]).

use std::collections::BTreeMap;
use std::sync::Arc;

mod demand;
mod holders;
mod level;
#[cfg(test)]
mod tests;
mod timing;

pub use demand::Demand;
pub use level::Fair;
pub(super) use level::note_use;
use level::{GUESS, Level, Next, Waiting};
pub use timing::{ShownTiming, Timing, Use};

/// A level as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LevelSpec {
    /// The name of the PriorityLevelConfiguration.
    pub name: Arc<str>,
    /// Nominal seats.
    pub nominal: usize,
    /// How many of them others may use.
    pub lendable: usize,
    /// How many seats of others it may use.
    pub borrowable: usize,
    /// Queues; without, what does not fit is refused.
    pub queuing: Option<Queuing>,
}

/// Most seats of one request, as in kube-apiserver.
const MOST_SEATS: usize = 10;
/// The share of a level that one request may take at most.
const SHARE_OF_LEVEL: f64 = 0.15;

impl LevelSpec {
    /// How many requests can wait.
    fn places(&self) -> usize {
        self.queuing
            .map_or(0, |it| it.queues.saturating_mul(it.length))
    }

    /// Most seats of one request.
    pub fn widest(&self) -> usize {
        let hand = self.queuing.map_or(1, |queuing| queuing.hand.max(1));
        let share = (self.nominal as f64 * SHARE_OF_LEVEL).ceil() as usize;
        share.min(self.nominal / hand).clamp(1, MOST_SEATS)
    }
}

/// `limitResponse.queuing` of a priority level: requests that get no seat wait in queues by shuffle sharding (KEP
/// 1040).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queuing {
    /// The number of queues, `queues`.
    pub queues: usize,
    /// How many of them a flow may use.
    pub hand: usize,
    /// Requests in one.
    pub length: usize,
}

/// An identifier that does not change while the level exists.
pub type LevelId = u32;

/// Where a request comes from, as hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sender {
    /// The flow, by the distinguisher of the FlowSchema: it chooses the queues.
    pub flow: u64,
    /// The user.
    pub user: u64,
    /// The user, or the namespace of a service account.
    pub owner: u64,
}

/// A request that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket {
    id: u64,
    level: LevelId,
    queue: usize,
}

/// A request that has seats.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Running {
    level: LevelId,
    sender: Sender,
    queue: Option<usize>,
    pub(super) seats: usize,
    started: f64,
}

/// The decision about a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrival {
    /// The request may start.
    Start(Running),
    /// It waits to be started, with so many requests in its queue.
    Wait(Ticket, usize),
    /// It is refused.
    Refuse(Refusal),
}

/// Why a request is refused, in the words of upstream's metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Its queue is full.
    QueueFull,
    /// The level has no seats and no queues.
    ConcurrencyLimit,
    /// It has waited too long.
    TimeOut,
}

impl Refusal {
    /// The label of the metric.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::QueueFull => "queue-full",
            Refusal::ConcurrencyLimit => "concurrency-limit",
            Refusal::TimeOut => "time-out",
        }
    }
}

/// What a level has at the moment, for metrics.
#[derive(Debug, Clone)]
pub struct Numbers {
    /// The name of the PriorityLevelConfiguration, the label of the metrics.
    pub name: Arc<str>,
    /// Nominal seats.
    pub nominal: usize,
    /// Seats that are not lent.
    pub lower: usize,
    /// The most that it can have.
    pub upper: usize,
    /// What it can have now.
    pub current: usize,
    /// Seats and requests over time.
    pub usage: Use,
    /// The seats that it could use, by periods.
    pub demand: Demand,
    /// Virtual time; an exempt level has none.
    pub fair: Option<Fair>,
}

/// All levels.
#[derive(Default)]
pub struct Seats {
    levels: BTreeMap<LevelId, Level>,
    /// Names of the levels that are configured.
    names: BTreeMap<Arc<str>, LevelId>,
    next_level: LevelId,
    next_ticket: u64,
    total: usize,
    used: usize,
    kept: usize,
    waiting: usize,
    /// The request that the last dispatch had no seats for.
    lacking: Option<u64>,
}

impl Seats {
    /// Applies a new configuration; returns the levels. Waiting and running requests of removed levels are not lost.
    pub fn configure(&mut self, specs: Vec<LevelSpec>) -> BTreeMap<Arc<str>, LevelId> {
        let mut names = BTreeMap::new();
        for spec in specs {
            let name = spec.name.clone();
            let id = self.names.remove(&name).unwrap_or_else(|| {
                self.next_level += 1;
                self.next_level
            });
            match self.levels.get_mut(&id) {
                Some(level) => {
                    level.spec = spec;
                    level.grow();
                }
                None => drop(self.levels.insert(id, Level::new(spec))),
            }
            names.insert(name, id);
        }
        for id in std::mem::replace(&mut self.names, names.clone()).into_values() {
            if let Some(level) = self.levels.get_mut(&id) {
                level.spec.nominal = 0;
                level.spec.lendable = 0;
                level.spec.borrowable = usize::MAX;
            }
        }
        let known: Vec<LevelId> = names.values().copied().collect();
        self.levels
            .retain(|id, level| known.contains(id) || !level.is_idle());
        self.total = self.levels.values().map(|level| level.spec.nominal).sum();
        self.kept = self.levels.values().map(|it| it.kept(it.used)).sum();
        names
    }

    /// A request arrives.
    pub fn arrive(&mut self, id: LevelId, sender: Sender, seats: usize, now: f64) -> Arrival {
        let others_wait = self.ready();
        let free = self.free(id);
        let Some(level) = self.levels.get_mut(&id) else {
            return Arrival::Refuse(Refusal::ConcurrencyLimit);
        };
        level.sync(now);
        let seats = seats.clamp(1, level.spec.nominal.max(1));
        let queue = level
            .spec
            .queuing
            .map(|queuing| level.deal(queuing, sender.flow));
        let own = level.used + seats <= level.spec.nominal;
        let first = level.ready(free) == 0 && (own || !others_wait);
        if first && level.may_start(sender, free) && self.fits(id, seats) {
            return Arrival::Start(self.start(id, sender, queue, seats, now));
        }
        let Some(level) = self.levels.get_mut(&id) else {
            return Arrival::Refuse(Refusal::ConcurrencyLimit);
        };
        let (Some(index), Some(queuing)) = (queue, level.spec.queuing) else {
            return Arrival::Refuse(Refusal::ConcurrencyLimit);
        };
        if level.queues[index].waiting.len() >= queuing.length {
            return Arrival::Refuse(Refusal::QueueFull);
        }
        self.next_ticket += 1;
        let ticket = self.next_ticket;
        let waiting = Waiting {
            ticket,
            sender,
            seats,
        };
        level.enqueue(index, waiting);
        self.waiting += 1;
        let length = level.queues[index].waiting.len();
        let ticket = Ticket {
            id: ticket,
            level: id,
            queue: index,
        };
        Arrival::Wait(ticket, length)
    }

    /// A request has ended.
    pub fn finish(&mut self, running: Running, now: f64) {
        let Some(level) = self.levels.get_mut(&running.level) else {
            return;
        };
        level.sync(now);
        self.kept -= level.kept(level.used);
        level.used -= running.seats;
        level.holders.give_back(running.sender, running.seats);
        level.executing -= 1;
        self.kept += level.kept(level.used);
        self.used -= running.seats;
        if let Some(index) = running.queue {
            let took = (now - running.started).max(0.0);
            level.change_queue(index, |queue| {
                queue.executing -= 1;
                queue.executing_seats -= running.seats;
                queue.next += running.seats as f64 * (took - GUESS);
            });
        }
        if level.spec.nominal == 0 && level.is_idle() && !self.is_configured(running.level) {
            self.levels.remove(&running.level);
        }
    }

    fn is_configured(&self, id: LevelId) -> bool {
        self.names.values().any(|known| *known == id)
    }

    /// A request stops waiting; returns false if it was not waiting.
    pub fn cancel(&mut self, ticket: Ticket, now: f64) -> bool {
        let Some(level) = self.levels.get_mut(&ticket.level) else {
            return false;
        };
        level.sync(now);
        let queue = &level.queues[ticket.queue];
        let Some(place) = queue.waiting.iter().position(|it| it.ticket == ticket.id) else {
            return false;
        };
        level.leave(ticket.queue, place, |_| {});
        self.waiting -= 1;
        true
    }

    /// Starts a waiting request, if there are seats for one.
    pub fn dispatch(&mut self, now: f64) -> Option<(u64, Running)> {
        self.lacking = None;
        if self.waiting == 0 {
            return None;
        }
        // Requests within the seats of their level first; among them, and then among the others, the level with the
        // smallest share of its nominal seats.
        let mut candidates: Vec<(bool, f64, LevelId, Next)> = Vec::new();
        let mut lacking = None;
        for (id, level) in &self.levels {
            if level.waiting == 0 {
                continue;
            }
            let Some(next) = level.first(self.free(*id)) else {
                lacking = lacking.or_else(|| level.head());
                continue;
            };
            let borrows = level.used + next.seats > level.spec.nominal;
            let share = level.used as f64 / level.spec.nominal.max(1) as f64;
            candidates.push((borrows, share, *id, next));
        }
        self.lacking = lacking;
        candidates.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let mut owners_wait = false;
        for (borrows, _, id, next) in candidates {
            let seats = next.seats;
            if borrows && owners_wait {
                return None;
            }
            if self.fits(id, seats) {
                return self.start_waiting(id, next, now);
            }
            if self.lacking.is_none() {
                self.lacking = self.levels.get(&id).and_then(|it| it.ticket(next));
            }
            let limit = self.levels.get(&id).map_or(0, Level::most);
            let used = self.levels.get(&id).map_or(0, |level| level.used);
            if borrows && used + seats <= limit {
                // It lacks only free seats: no later request may take them.
                return None;
            }
            owners_wait |= !borrows;
        }
        None
    }

    fn start_waiting(&mut self, id: LevelId, next: Next, now: f64) -> Option<(u64, Running)> {
        let (index, seats) = (next.queue, next.seats);
        let level = self.levels.get_mut(&id)?;
        level.sync(now);
        // In one step: a queue that is empty in between would lose its place in virtual time.
        let first = level.leave(index, next.place, |queue| queue.run(seats))?;
        level.note_dispatch(index);
        level.robin = (index + 1) % level.queues.len();
        self.waiting -= 1;
        self.occupy(id, first.sender, seats);
        let running = Running {
            level: id,
            sender: first.sender,
            queue: Some(index),
            seats,
            started: now,
        };
        Some((first.ticket, running))
    }

    fn start(
        &mut self,
        id: LevelId,
        sender: Sender,
        queue: Option<usize>,
        seats: usize,
        now: f64,
    ) -> Running {
        if let (Some(level), Some(index)) = (self.levels.get_mut(&id), queue) {
            level.change_queue(index, |queue| queue.run(seats));
            level.note_dispatch(index);
        }
        self.occupy(id, sender, seats);
        Running {
            level: id,
            sender,
            queue,
            seats,
            started: now,
        }
    }

    fn occupy(&mut self, id: LevelId, sender: Sender, seats: usize) {
        if let Some(level) = self.levels.get_mut(&id) {
            self.kept -= level.kept(level.used);
            level.used += seats;
            level.holders.take(sender, seats);
            level.executing += 1;
            self.kept += level.kept(level.used);
            self.used += seats;
        }
    }

    /// There are free seats that the level may use.
    fn fits(&self, id: LevelId, seats: usize) -> bool {
        let Some(level) = self.levels.get(&id) else {
            return false;
        };
        // A level without nominal seats executes one request after the other.
        level.spec.nominal == 0 && level.used == 0 || seats <= self.free(id)
    }

    /// The seats that the level may take now: all but those that other levels keep.
    fn free(&self, id: LevelId) -> usize {
        let Some(level) = self.levels.get(&id) else {
            return 0;
        };
        let kept = self.kept - level.kept(level.used);
        let free = self.total.saturating_sub(self.used + kept);
        free.min(level.most().saturating_sub(level.used))
    }

    /// Some request waits for its turn, and not only for its user to give seats back.
    fn ready(&self) -> bool {
        let mut levels = self.levels.iter();
        self.waiting > 0 && levels.any(|(id, it)| it.ready(self.free(*id)) > 0)
    }

    /// What the levels have at the moment.
    pub fn numbers(&self) -> impl Iterator<Item = Numbers> + '_ {
        self.levels.iter().map(|(id, level)| Numbers {
            name: level.spec.name.clone(),
            nominal: level.spec.nominal,
            lower: level.spec.nominal - level.spec.lendable,
            upper: level.most().min(self.total),
            current: level.used + self.free(*id),
            usage: level.usage.clone(),
            demand: level.demand,
            fair: Some(level.fair()),
        })
    }

    /// The requests in the queue of one that starts, with it.
    pub fn queue_length(&self, running: &Running) -> Option<usize> {
        let level = self.levels.get(&running.level)?;
        let queue = level.queues.get(running.queue?)?;
        Some(queue.waiting.len() + 1)
    }

    /// The waiting request whose turn it was when the last call of [`Self::dispatch`] lacked seats.
    pub fn lacking(&self) -> Option<u64> {
        self.lacking
    }

    /// Seats and places in queues of all levels.
    pub fn capacity(&self) -> (usize, usize) {
        let places = self.levels.values().map(|it| it.spec.places());
        (self.total, places.fold(0, usize::saturating_add))
    }

    /// Takes note of the time that has passed.
    pub fn sync(&mut self, now: f64) {
        for level in self.levels.values_mut() {
            level.sync(now);
        }
    }
}

impl Ticket {
    /// The number that [`Seats::dispatch`] names it by.
    pub fn id(self) -> u64 {
        self.id
    }
}
