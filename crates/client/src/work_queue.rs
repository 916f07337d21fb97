//! A work queue, as client-go's: keys are deduplicated, never handed to two workers at once, added again with a growing delay
//! after an error, and can be added for later.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::Notify;
use tokio::time::Instant;

#[cfg(test)]
mod tests;

/// The longest wait of a key, after which it is handled again: objects name times in thousands of years, and a key would be
/// kept for as long after its object is gone.
pub const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// The delay of keys after errors.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    /// After the first error of a key; doubles with each further error in a row.
    pub first: Duration,
    /// Its upper bound.
    pub longest: Duration,
    /// A limit for all keys together.
    pub bucket: Option<Bucket>,
}

/// A token bucket for the keys that are added again: so many at once, and then one in each period.
#[derive(Debug, Clone, Copy)]
pub struct Bucket {
    /// Tokens of the full bucket.
    pub size: u32,
    /// Time after which a token is added.
    pub period: Duration,
}

/// What is told of a queue, for metrics. The methods are called while the queue is locked, and must not use it.
pub trait Observer {
    /// A key was added that did not wait already.
    fn added(&self) {}
    /// A key was added after an error.
    fn retried(&self) {}
    /// So many keys wait for a worker now.
    fn depth(&self, _keys: usize) {}
}

impl Observer for () {}

#[derive(Debug)]
struct State<K> {
    ready: VecDeque<K>,
    /// In `ready`, or to be put there when processing ends, since these times.
    dirty: FxHashMap<K, Instant>,
    processing: FxHashSet<K>,
    /// Not before a time; entries that `due` does not confirm are void.
    later: BinaryHeap<Reverse<(Instant, K)>>,
    due: FxHashMap<K, Instant>,
    failures: FxHashMap<K, u32>,
    /// When the bucket is full again.
    full: Instant,
}

/// The queue.
#[derive(Debug)]
pub struct WorkQueue<K, O = ()> {
    state: Mutex<State<K>>,
    changed: Notify,
    backoff: Backoff,
    observer: O,
}

impl<K: Clone + Eq + Hash + Ord, O: Observer> WorkQueue<K, O> {
    /// An empty queue.
    pub fn new(backoff: Backoff, observer: O) -> Self {
        Self {
            state: Mutex::new(State {
                ready: VecDeque::new(),
                dirty: FxHashMap::default(),
                processing: FxHashSet::default(),
                later: BinaryHeap::new(),
                due: FxHashMap::default(),
                failures: FxHashMap::default(),
                full: Instant::now(),
            }),
            changed: Notify::new(),
            backoff,
            observer,
        }
    }

    /// What is told of the queue.
    pub fn observer(&self) -> &O {
        &self.observer
    }

    /// Adds a key to be handled as soon as possible; once, however often it is added.
    pub fn add(&self, key: K) {
        self.add_locked(&mut self.state.lock(), key);
        self.changed.notify_one();
    }

    fn add_locked(&self, state: &mut State<K>, key: K) {
        if state.dirty.contains_key(&key) {
            return;
        }
        self.observer.added();
        state.dirty.insert(key.clone(), Instant::now());
        if !state.processing.contains(&key) {
            state.ready.push_back(key);
            self.observer.depth(state.ready.len());
        }
    }

    /// Adds a key to be handled after a delay of at most [`LONGEST`]; the earliest of several times counts.
    pub fn add_after(&self, key: K, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        let at = Instant::now() + delay.min(LONGEST);
        let mut state = self.state.lock();
        if state.due.get(&key).is_some_and(|due| *due <= at) {
            return;
        }
        state.due.insert(key.clone(), at);
        state.later.push(Reverse((at, key)));
        drop(state);
        self.changed.notify_one();
    }

    /// Adds a key after an error, later with each error in a row.
    pub fn retry(&self, key: K) {
        let delay = {
            let mut state = self.state.lock();
            self.observer.retried();
            let failures = state.failures.entry(key.clone()).or_default();
            let own = self.backoff.first.saturating_mul(1 << (*failures).min(20));
            *failures = failures.saturating_add(1);
            let own = own.min(self.backoff.longest);
            match self.backoff.bucket {
                None => own,
                Some(Bucket { size, period }) => {
                    let now = Instant::now();
                    state.full = state.full.max(now) + period;
                    let shared = (state.full - now).saturating_sub(period.saturating_mul(size));
                    own.max(shared)
                }
            }
        };
        self.add_after(key, delay);
    }

    /// How many errors in a row a key has.
    pub fn failures(&self, key: &K) -> u32 {
        self.state.lock().failures.get(key).copied().unwrap_or(0)
    }

    /// Forgets the errors of a key: the next one is its first.
    pub fn forget(&self, key: &K) {
        self.state.lock().failures.remove(key);
    }

    /// How many keys wait for a worker, and how many are being processed.
    pub fn lengths(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.ready.len(), state.processing.len())
    }

    /// Whether no key waits, is being processed, or is delayed.
    pub fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.dirty.is_empty() && state.processing.is_empty() && state.due.is_empty()
    }

    /// Takes the next ready key, or returns until when to wait.
    fn try_next(&self) -> Result<(K, Duration), Option<Instant>> {
        let now = Instant::now();
        let mut state = self.state.lock();
        while let Some(Reverse((at, _))) = state.later.peek() {
            if *at > now {
                break;
            }
            let Some(Reverse((at, key))) = state.later.pop() else {
                break;
            };
            if state.due.get(&key) == Some(&at) {
                state.due.remove(&key);
                self.add_locked(&mut state, key);
            }
        }
        match state.ready.pop_front() {
            Some(key) => {
                let added = state.dirty.remove(&key).unwrap_or(now);
                state.processing.insert(key.clone());
                self.observer.depth(state.ready.len());
                if !state.ready.is_empty() {
                    // For another worker.
                    self.changed.notify_one();
                }
                Ok((key, now.saturating_duration_since(added)))
            }
            None => Err(state.later.peek().map(|Reverse((at, _))| *at)),
        }
    }

    /// Waits for the next key, and returns how long that has waited. [`WorkQueue::done`] has to follow.
    pub async fn next(&self) -> (K, Duration) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            match self.try_next() {
                Ok(next) => return next,
                Err(None) => changed.await,
                Err(Some(at)) => {
                    let _ = tokio::time::timeout_at(at, changed).await;
                }
            }
        }
    }

    /// Ends the processing of a key; it is handed out again if it was added meanwhile.
    pub fn done(&self, key: &K) {
        let mut state = self.state.lock();
        state.processing.remove(key);
        if state.dirty.contains_key(key) {
            state.ready.push_back(key.clone());
            self.observer.depth(state.ready.len());
            drop(state);
            self.changed.notify_one();
        }
    }
}
