//! The bytes of answers that connections hold until their clients read them.
//!
//! A connection accepts the first piece of every answer, whether its client reads it or not, and more until its queues are
//! full; over HTTP/2 that is a piece for each stream. Every piece counts until the connection has sent it. What a
//! connection holds beyond a small allowance counts against a pool that all connections share. When the pool is
//! exhausted, a connection accepts more only after its client has read what the connection holds, or if another user holds
//! more than a part of the pool: of that user's connections the slowest one ends. A piece counts for the user whose request it
//! answers, whatever other requests come on the connection.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::limits::UNREAD;
use crate::shares::PART;

/// The bytes that all connections hold.
#[derive(Debug)]
pub struct Pool {
    most: usize,
    held: AtomicUsize,
    /// The part of `held` that is beyond the allowances of the connections.
    beyond: AtomicUsize,
    next: AtomicU64,
    /// The connections that hold more than their allowances.
    holders: Mutex<HashMap<u64, Holder>>,
}

/// A connection that holds more than its allowance.
#[derive(Debug)]
struct Holder {
    /// What it holds for whom: requests of several users may come on one connection.
    owners: Owners,
    /// So many bytes more than its allowance.
    beyond: usize,
    /// When it has last sent something, or else exceeded its allowance.
    since: Instant,
    /// Ends it.
    abort: CancellationToken,
}

/// How many bytes a connection holds for each user.
type Owners = HashMap<Arc<str>, usize>;

impl Pool {
    /// A pool of `most` bytes beyond the allowances.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Pool {
            most,
            held: AtomicUsize::new(0),
            beyond: AtomicUsize::new(0),
            next: AtomicU64::new(0),
            holders: Mutex::default(),
        })
    }

    /// Bytes that connections have not sent, allowances included.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    fn has_room(&self) -> bool {
        self.beyond.load(Ordering::Relaxed) < self.most
    }

    /// Ends a connection of the user that holds most, if that is more than a part of the pool and another user: the one that has
    /// sent nothing for the longest time. What it holds counts no longer. Whether there is room then.
    fn make_room(&self, owner: &str) -> bool {
        let mut holders = self.holders.lock();
        if self.has_room() {
            return true;
        }
        let mut of_owners: HashMap<&str, usize> = HashMap::new();
        for holder in holders.values() {
            for (owner, held) in &holder.owners {
                *of_owners.entry(owner).or_default() += (*held).min(holder.beyond);
            }
        }
        let most = of_owners
            .into_iter()
            .max_by_key(|(owner, held)| (*held, *owner));
        let Some((greedy, held)) = most else {
            return false;
        };
        if greedy == owner || held <= self.most / PART {
            return false;
        }
        let own = holders.iter().filter_map(|(id, holder)| {
            let held = *holder.owners.get(greedy)?;
            let is_of_others = holder.owners.values().any(|other| *other > held);
            Some((is_of_others, holder.since, *id))
        });
        // A connection that others have in common with the user ends if there is none of its own.
        let slowest = own.min();
        let slowest = slowest.map(|(_, _, id)| id);
        if let Some(holder) = slowest.and_then(|id| holders.remove(&id)) {
            change(&self.beyond, holder.beyond, 0);
            holder.abort.cancel();
        }
        self.has_room()
    }
}

/// Where an answer counts: the connection that holds it, and the user whose request it answers.
#[derive(Clone)]
pub(crate) struct Account {
    pub unread: Arc<Unread>,
    pub owner: Arc<str>,
}

impl Account {
    /// Counts a complete answer until it is dropped; `None` if the connection can hold no more.
    pub fn give(&self, bytes: &Bytes) -> Option<Bytes> {
        self.unread.give(&self.owner, bytes)
    }
}

/// The bytes that one connection holds.
pub(crate) struct Unread {
    pool: Arc<Pool>,
    id: u64,
    abort: CancellationToken,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    held: usize,
    owners: Owners,
    /// When each complete answer among them was passed to the connection, the oldest first.
    answers: BTreeMap<u64, Instant>,
    /// The streams that wait until the connection can hold more.
    waiting: HashMap<u64, Waker>,
    /// The number of the next answer or stream.
    next: u64,
}

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl Unread {
    /// Those of a connection that `abort` ends.
    pub fn new(pool: Arc<Pool>, abort: CancellationToken) -> Arc<Self> {
        Arc::new(Unread {
            id: pool.next.fetch_add(1, Ordering::Relaxed),
            pool,
            abort,
            state: Mutex::default(),
        })
    }

    fn give(self: &Arc<Self>, owner: &Arc<str>, bytes: &Bytes) -> Option<Bytes> {
        let mut state = self.state.lock();
        if !self.makes_room(&state, owner) {
            return None;
        }
        let number = state.number();
        state.answers.insert(number, Instant::now());
        Some(self.count(&mut state, owner, bytes.clone(), Some(number)))
    }

    /// How long the oldest of the complete answers has been held.
    pub fn oldest(&self) -> Option<Duration> {
        let state = self.state.lock();
        state.answers.values().next().map(Instant::elapsed)
    }

    fn has_room(&self, state: &State) -> bool {
        state.held < UNREAD || self.pool.has_room()
    }

    /// The same, at the expense of a user that holds too much.
    fn makes_room(&self, state: &State, owner: &str) -> bool {
        self.has_room(state) || self.pool.make_room(owner)
    }

    fn count(
        self: &Arc<Self>,
        state: &mut State,
        owner: &Arc<str>,
        bytes: Bytes,
        answer: Option<u64>,
    ) -> Bytes {
        *state.owners.entry(owner.clone()).or_default() += bytes.len();
        self.set(state, state.held + bytes.len());
        Bytes::from_owner(Piece {
            of: self.clone(),
            owner: owner.clone(),
            bytes,
            answer,
        })
    }

    fn set(&self, state: &mut State, held: usize) {
        let before = std::mem::replace(&mut state.held, held);
        change(&self.pool.held, before, held);
        let beyond = |held: usize| held.saturating_sub(UNREAD);
        if beyond(before) > 0 || beyond(held) > 0 {
            self.note(&state.owners, beyond(held), held < before);
        }
    }

    /// Tells the pool how much is beyond the allowance. That of a connection that was ended counts no longer.
    fn note(&self, owners: &Owners, beyond: usize, has_sent: bool) {
        let mut holders = self.pool.holders.lock();
        let known = holders.remove(&self.id);
        let counted = known.as_ref().map_or(0, |known| known.beyond);
        let beyond = match self.abort.is_cancelled() {
            true => 0,
            false => beyond,
        };
        change(&self.pool.beyond, counted, beyond);
        if beyond > 0 {
            let since = known.map(|known| known.since).filter(|_| !has_sent);
            let holder = Holder {
                owners: owners.clone(),
                beyond,
                since: since.unwrap_or_else(Instant::now),
                abort: self.abort.clone(),
            };
            holders.insert(self.id, holder);
        }
    }
}

fn change(counter: &AtomicUsize, before: usize, after: usize) {
    match after.checked_sub(before) {
        Some(more) => counter.fetch_add(more, Ordering::Relaxed),
        None => counter.fetch_sub(before - after, Ordering::Relaxed),
    };
}

/// Bytes that a connection holds.
struct Piece {
    of: Arc<Unread>,
    /// Whose request it answers.
    owner: Arc<str>,
    bytes: Bytes,
    /// The number of the answer, if they are a complete one.
    answer: Option<u64>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let mut state = self.of.state.lock();
        if let Some(held) = state.owners.get_mut(&self.owner) {
            *held -= self.bytes.len();
            if *held == 0 {
                state.owners.remove(&self.owner);
            }
        }
        let left = state.held - self.bytes.len();
        self.of.set(&mut state, left);
        if let Some(answer) = self.answer {
            state.answers.remove(&answer);
        }
        let woken = match self.of.has_room(&state) {
            true => std::mem::take(&mut state.waiting),
            false => HashMap::new(),
        };
        drop(state);
        for waker in woken.into_values() {
            waker.wake();
        }
    }
}

/// An answer that a connection receives in pieces.
pub(crate) struct Stream {
    of: Arc<Unread>,
    owner: Arc<str>,
    number: u64,
}

impl Stream {
    pub fn of(Account { unread, owner }: &Account) -> Self {
        let number = unread.state.lock().number();
        Stream {
            of: unread.clone(),
            owner: owner.clone(),
            number,
        }
    }

    /// Waits until the connection can hold another piece. A stream is woken when its own connection has sent something,
    /// not when another one has: a connection that can hold no more holds at least its allowance, and will send that.
    pub fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.of.state.lock();
        if self.of.makes_room(&state, &self.owner) {
            return Poll::Ready(());
        }
        let waker = context.waker().clone();
        let before = state.waiting.insert(self.number, waker);
        // The waker can own the last reference to a stream of this connection, whose drop locks the state.
        drop(state);
        drop(before);
        Poll::Pending
    }

    /// Counts the next piece, whatever its size, until it is dropped.
    pub fn count(&self, bytes: Bytes) -> Bytes {
        self.of
            .count(&mut self.of.state.lock(), &self.owner, bytes, None)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let waker = self.of.state.lock().waiting.remove(&self.number);
        drop(waker);
    }
}

#[cfg(test)]
mod tests;
