//! The bytes of answers that connections hold until their clients read them.
//!
//! A connection accepts the first piece of every answer, whether its client reads it or not, and more until its queues are
//! full; over HTTP/2 that is a piece for each stream. Every piece counts until the connection has sent it. What a
//! connection holds beyond a small allowance counts against a pool that all connections share. When the pool is
//! exhausted, a connection accepts more only after its client has read what the connection holds, or if another user holds
//! more than a part of the pool: of that user's connections the slowest one ends.

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
    owner: Arc<str>,
    /// So many bytes more.
    beyond: usize,
    /// When it has last sent something, or else exceeded its allowance.
    since: Instant,
    /// Ends it.
    abort: CancellationToken,
}

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
            *of_owners.entry(&holder.owner).or_default() += holder.beyond;
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
        let own = holders
            .iter()
            .filter(|(_, holder)| &*holder.owner == greedy);
        let slowest = own.min_by_key(|(id, holder)| (holder.since, **id));
        let slowest = slowest.map(|(id, _)| *id);
        if let Some(holder) = slowest.and_then(|id| holders.remove(&id)) {
            change(&self.beyond, holder.beyond, 0);
            holder.abort.cancel();
        }
        self.has_room()
    }
}

/// Whose share a connection is, as of its last request.
#[derive(Debug)]
pub(crate) struct Owner(Mutex<Arc<str>>);

impl Owner {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new("".into())))
    }

    pub fn get(&self) -> Arc<str> {
        self.0.lock().clone()
    }

    pub fn set(&self, owner: &str) {
        let mut noted = self.0.lock();
        if &**noted != owner {
            *noted = owner.into();
        }
    }
}

/// The bytes that one connection holds.
pub(crate) struct Unread {
    pool: Arc<Pool>,
    id: u64,
    owner: Arc<Owner>,
    abort: CancellationToken,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    held: usize,
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
    pub fn new(pool: Arc<Pool>, owner: Arc<Owner>, abort: CancellationToken) -> Arc<Self> {
        Arc::new(Unread {
            id: pool.next.fetch_add(1, Ordering::Relaxed),
            pool,
            owner,
            abort,
            state: Mutex::default(),
        })
    }

    /// Counts a complete answer until it is dropped; `None` if the connection can hold no more.
    pub fn give(self: &Arc<Self>, bytes: &Bytes) -> Option<Bytes> {
        let mut state = self.state.lock();
        if !self.makes_room(&state) {
            return None;
        }
        let number = state.number();
        state.answers.insert(number, Instant::now());
        Some(self.count(&mut state, bytes.clone(), Some(number)))
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
    fn makes_room(&self, state: &State) -> bool {
        self.has_room(state) || self.pool.make_room(&self.owner.get())
    }

    fn count(self: &Arc<Self>, state: &mut State, bytes: Bytes, answer: Option<u64>) -> Bytes {
        self.set(state, state.held + bytes.len());
        Bytes::from_owner(Piece {
            of: self.clone(),
            bytes,
            answer,
        })
    }

    fn set(&self, state: &mut State, held: usize) {
        let before = std::mem::replace(&mut state.held, held);
        change(&self.pool.held, before, held);
        let beyond = |held: usize| held.saturating_sub(UNREAD);
        if beyond(before) > 0 || beyond(held) > 0 {
            self.note(beyond(held), held < before);
        }
    }

    /// Tells the pool how much is beyond the allowance. That of a connection that was ended counts no longer.
    fn note(&self, beyond: usize, has_sent: bool) {
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
                owner: self.owner.get(),
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
    number: u64,
}

impl Stream {
    pub fn of(unread: &Arc<Unread>) -> Self {
        let number = unread.state.lock().number();
        let of = unread.clone();
        Stream { of, number }
    }

    /// Waits until the connection can hold another piece. A stream is woken when its own connection has sent something,
    /// not when another one has: a connection that can hold no more holds at least its allowance, and will send that.
    pub fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.of.state.lock();
        if self.of.makes_room(&state) {
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
        self.of.count(&mut self.of.state.lock(), bytes, None)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let waker = self.of.state.lock().waiting.remove(&self.number);
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const HALF: usize = UNREAD / 2;

    fn bytes(size: usize) -> Bytes {
        vec![b'x'; size].into()
    }

    /// A connection of a user.
    fn connection(pool: &Arc<Pool>, user: &str) -> Arc<Unread> {
        let owner = Owner::new();
        owner.set(user);
        Unread::new(pool.clone(), owner, CancellationToken::new())
    }

    #[test]
    fn answers_count_until_they_are_dropped() {
        let pool = Pool::new(UNREAD);
        let unread = connection(&pool, "jane");
        let mut given = Vec::new();
        // An allowance and the pool, in halves.
        for _ in 0..4 {
            given.push(unread.give(&bytes(HALF)).unwrap());
        }
        assert_eq!(given[0], bytes(HALF));
        assert!(unread.give(&bytes(1)).is_none());
        assert_eq!(pool.held(), 2 * UNREAD);
        assert!(unread.oldest().is_some());
        // Another connection still has its allowance, and no more.
        let other = connection(&pool, "jane");
        let of_other = [other.give(&bytes(UNREAD - 1)), other.give(&bytes(2))];
        assert!(of_other.iter().all(Option::is_some));
        assert!(other.give(&bytes(1)).is_none());
        // A part of an answer keeps the whole answer.
        let part = given[0].slice(..1);
        given.remove(0);
        assert!(unread.give(&bytes(1)).is_none());
        drop(part);
        drop(of_other);
        given.push(unread.give(&bytes(1)).unwrap());
        drop(given);
        assert_eq!(pool.held(), 0);
        assert_eq!(pool.beyond.load(Ordering::Relaxed), 0);
        assert!(unread.oldest().is_none());
    }

    #[tokio::test]
    async fn a_stream_waits_for_what_its_connection_sends() {
        let pool = Pool::new(0);
        let unread = connection(&pool, "jane");
        let stream = Stream::of(&unread);
        poll_fn(|context| stream.poll_room(context)).await;
        let piece = stream.count(bytes(3 * UNREAD));
        assert_eq!(pool.held(), 3 * UNREAD);
        let waiting = tokio::spawn(async move {
            poll_fn(|context| stream.poll_room(context)).await;
            stream
        });
        while unread.state.lock().waiting.is_empty() {
            tokio::task::yield_now().await;
        }
        assert!(!waiting.is_finished());
        drop(piece);
        let stream = waiting.await.unwrap();
        drop(stream);
        assert_eq!(pool.held(), 0);
    }

    /// A stream that its client cancels while it waits leaves no waker behind.
    #[test]
    fn a_stream_that_ends_does_not_wait() {
        let unread = connection(&Pool::new(0), "jane");
        let held = unread.give(&bytes(UNREAD));
        let mut context = Context::from_waker(Waker::noop());
        let stream = Stream::of(&unread);
        assert!(stream.poll_room(&mut context).is_pending());
        assert_eq!(unread.state.lock().waiting.len(), 1);
        drop(stream);
        assert!(unread.state.lock().waiting.is_empty());
        drop(held);
    }

    /// While one user held the whole pool, the streams of another user's connection waited for a slow one among them, and ended as
    /// if they had not been read.
    #[test]
    fn regression_a_user_that_holds_the_pool_makes_room_for_others() {
        let pool = Pool::new(5 * UNREAD);
        let eve: Vec<_> = (0..3).map(|_| connection(&pool, "eve")).collect();
        let give = |from: usize, size: usize| eve[from].give(&bytes(size)).unwrap();
        let (sent, left) = (give(0, UNREAD), give(0, 2 * UNREAD));
        let held = [left, give(1, 3 * UNREAD), give(2, 3 * UNREAD)];
        // Of the connections the first one has sent something last.
        drop(sent);
        assert_eq!(pool.beyond.load(Ordering::Relaxed), 5 * UNREAD);
        let ended = || {
            eve.iter()
                .map(|it| it.abort.is_cancelled())
                .collect::<Vec<_>>()
        };
        let jane = connection(&pool, "jane");
        let slow = jane.give(&bytes(UNREAD));
        assert!(slow.is_some() && ended() == [false; 3]);
        let mut context = Context::from_waker(Waker::noop());
        let stream = Stream::of(&jane);
        assert!(stream.poll_room(&mut context).is_ready());
        assert_eq!(ended(), [false, true, false]);
        let piece = stream.count(bytes(UNREAD));
        // If it is she that holds most, she waits.
        drop(held);
        let other = connection(&pool, "jane");
        let most = other.give(&bytes(6 * UNREAD));
        assert!(most.is_some());
        assert!(stream.poll_room(&mut context).is_pending());
        drop((slow, piece, most));
        assert_eq!(pool.held(), 0);
        assert_eq!(pool.beyond.load(Ordering::Relaxed), 0);
        assert!(pool.holders.lock().is_empty());
    }
}
