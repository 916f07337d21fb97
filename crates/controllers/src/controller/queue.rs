//! A work queue: keys are deduplicated, never processed by two workers at once, retried with a
//! growing delay after an error, and can be added for later.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::metrics::QueueMetrics;
use crate::Error;

#[cfg(test)]
mod tests;

/// First delay after an error; doubles with each further error of the same key.
const BASE_DELAY: Duration = Duration::from_millis(5);
/// The longest wait of a key, after which it is handled again: objects name times in thousands of years, and a key would be
/// kept for as long after its object is gone.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Upper bound of the delay after errors.
const MAX_DELAY: Duration = Duration::from_secs(60);

/// What to do after a key was handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing until the next change.
    Done,
    /// Handle the key again after that time.
    After(Duration),
}

/// The bounds of a key of a queue.
pub trait QueueKey: Clone + Eq + Hash + Ord + Debug + Send + Sync + 'static {}
impl<T: Clone + Eq + Hash + Ord + Debug + Send + Sync + 'static> QueueKey for T {}

struct State<T> {
    ready: VecDeque<T>,
    /// In `ready`, or to be put there when processing ends.
    dirty: FxHashMap<T, Instant>,
    processing: FxHashSet<T>,
    later: BinaryHeap<Reverse<(Instant, T)>>,
    /// The earliest time per key in `later`; other heap entries of the key are void.
    due: FxHashMap<T, Instant>,
    failures: FxHashMap<T, u32>,
}

struct Inner<T> {
    state: Mutex<State<T>>,
    wake: Notify,
    metrics: QueueMetrics,
    name: &'static str,
}

/// The queue; cheap to clone.
pub struct Queue<T>(Arc<Inner<T>>);

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: QueueKey> Queue<T> {
    /// An empty queue; `name` is its label in metrics and logs.
    pub fn new(name: &'static str, metrics: QueueMetrics) -> Self {
        Self(Arc::new(Inner {
            state: Mutex::new(State {
                ready: VecDeque::new(),
                dirty: FxHashMap::default(),
                processing: FxHashSet::default(),
                later: BinaryHeap::new(),
                due: FxHashMap::default(),
                failures: FxHashMap::default(),
            }),
            wake: Notify::new(),
            metrics,
            name,
        }))
    }

    /// Adds a key to be handled as soon as possible.
    pub fn add(&self, key: T) {
        let mut state = self.0.state.lock();
        self.add_locked(&mut state, key);
        drop(state);
        self.0.wake.notify_one();
    }

    fn add_locked(&self, state: &mut State<T>, key: T) {
        if state.dirty.contains_key(&key) {
            return;
        }
        self.0.metrics.adds.inc();
        state.dirty.insert(key.clone(), Instant::now());
        if !state.processing.contains(&key) {
            state.ready.push_back(key);
            self.0.metrics.depth.set(state.ready.len() as i64);
        }
    }

    /// Adds a key to be handled after a delay; the earliest of several times counts.
    pub fn add_after(&self, key: T, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        let at = Instant::now() + delay.min(LONGEST);
        let mut state = self.0.state.lock();
        if state.due.get(&key).is_some_and(|due| *due <= at) {
            return;
        }
        state.due.insert(key.clone(), at);
        state.later.push(Reverse((at, key)));
        drop(state);
        self.0.wake.notify_one();
    }

    /// Adds a key after a failure, later with each failure in a row.
    fn add_rate_limited(&self, key: T) {
        let failures = {
            let mut state = self.0.state.lock();
            let n = state.failures.entry(key.clone()).or_insert(0);
            *n += 1;
            *n
        };
        self.0.metrics.retries.inc();
        self.add_after(key, backoff(failures));
    }

    /// How many failures in a row the key has.
    pub fn failures(&self, key: &T) -> u32 {
        self.0.state.lock().failures.get(key).copied().unwrap_or(0)
    }

    /// Forgets failures of a key.
    pub fn forget(&self, key: &T) {
        self.0.state.lock().failures.remove(key);
    }

    /// Whether more keys wait than are being processed: all workers are busy for a while.
    pub fn is_behind(&self) -> bool {
        let state = self.0.state.lock();
        state.ready.len() > state.processing.len()
    }

    /// Whether no key waits, is being processed, or is delayed.
    pub fn is_idle(&self) -> bool {
        let state = self.0.state.lock();
        state.dirty.is_empty() && state.processing.is_empty() && state.due.is_empty()
    }

    /// Takes the next ready key, or returns until when to wait.
    fn try_next(&self) -> Result<(T, Duration), Option<Instant>> {
        let now = Instant::now();
        let mut state = self.0.state.lock();
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
                self.0.metrics.depth.set(state.ready.len() as i64);
                Ok((key, now.saturating_duration_since(added)))
            }
            None => Err(state.later.peek().map(|Reverse((at, _))| *at)),
        }
    }

    /// Waits for the next key.
    pub async fn next(&self) -> T {
        loop {
            let woken = self.0.wake.notified();
            match self.try_next() {
                Ok((key, waited)) => {
                    self.0.metrics.queue_duration.observe(waited.as_secs_f64());
                    return key;
                }
                Err(None) => woken.await,
                Err(Some(at)) => {
                    let _ = tokio::time::timeout_at(at, woken).await;
                }
            }
        }
    }

    /// Ends the processing of a key; it is handled again if it was added meanwhile.
    pub fn done(&self, key: &T) {
        let mut state = self.0.state.lock();
        state.processing.remove(key);
        if state.dirty.contains_key(key) {
            state.ready.push_back(key.clone());
            self.0.metrics.depth.set(state.ready.len() as i64);
            drop(state);
            self.0.wake.notify_one();
        }
    }

    /// Handles keys with at most `workers` at a time until `shutdown`, then waits for those under
    /// way.
    pub async fn run<F, R>(self, workers: usize, shutdown: CancellationToken, handle: F)
    where
        F: Fn(T) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Next, Error>> + Send,
    {
        let handle = Arc::new(handle);
        let slots = Arc::new(Semaphore::new(workers));
        loop {
            let Ok(slot) = slots.clone().acquire_owned().await else {
                return;
            };
            let key = tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                key = self.next() => key,
            };
            let (queue, handle) = (self.clone(), handle.clone());
            tokio::spawn(async move {
                let _slot = slot;
                // Also after a panic of the handler, so that the key is not lost.
                let _done = Done(&queue, &key);
                let start = Instant::now();
                let result = handle(key.clone()).await;
                queue
                    .0
                    .metrics
                    .work_duration
                    .observe(start.elapsed().as_secs_f64());
                queue.settle(&key, result);
            });
        }
        let _ = slots.acquire_many(workers as u32).await;
    }

    fn settle(&self, key: &T, result: Result<Next, Error>) {
        match result {
            Ok(Next::Done) => self.forget(key),
            Ok(Next::After(delay)) => {
                self.forget(key);
                self.add_after(key.clone(), delay);
            }
            Err(error) => {
                // Conflicts are normal, and errors of an object were reported in an event.
                if error.is_conflict() || matches!(error, Error::Invalid(_)) {
                    tracing::debug!(queue = self.0.name, ?key, %error, "will retry");
                } else {
                    tracing::warn!(queue = self.0.name, ?key, %error, "will retry");
                }
                self.add_rate_limited(key.clone());
            }
        }
    }
}

struct Done<'a, T: QueueKey>(&'a Queue<T>, &'a T);

impl<T: QueueKey> Drop for Done<'_, T> {
    fn drop(&mut self) {
        self.0.done(self.1);
    }
}

/// The delay after that many failures in a row.
fn backoff(failures: u32) -> Duration {
    BASE_DELAY
        .saturating_mul(1u32 << failures.saturating_sub(1).min(20))
        .min(MAX_DELAY)
}
