//! The work queue of a controller: [`WorkQueue`] with metrics, and workers that handle its keys.

use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use allot_client::work_queue::{Backoff, Observer, WorkQueue};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::metrics::QueueMetrics;
use crate::Error;

#[cfg(test)]
mod tests;

const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(5),
    longest: Duration::from_secs(60),
    bucket: None,
};

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

impl Observer for QueueMetrics {
    fn added(&self) {
        self.adds.inc();
    }

    fn retried(&self) {
        self.retries.inc();
    }

    fn depth(&self, keys: usize) {
        self.depth.set(keys as i64);
    }
}

struct Inner<T> {
    keys: WorkQueue<T, QueueMetrics>,
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
        let keys = WorkQueue::new(BACKOFF, metrics);
        Self(Arc::new(Inner { keys, name }))
    }

    /// Adds a key to be handled as soon as possible.
    pub fn add(&self, key: T) {
        self.0.keys.add(key);
    }

    /// Adds a key to be handled after a delay; the earliest of several times counts.
    pub fn add_after(&self, key: T, delay: Duration) {
        self.0.keys.add_after(key, delay);
    }

    /// How many failures in a row the key has.
    pub fn failures(&self, key: &T) -> u32 {
        self.0.keys.failures(key)
    }

    /// Forgets failures of a key.
    pub fn forget(&self, key: &T) {
        self.0.keys.forget(key);
    }

    /// Whether more keys wait than are being processed: all workers are busy for a while.
    pub fn is_behind(&self) -> bool {
        let (ready, processing) = self.0.keys.lengths();
        ready > processing
    }

    /// Whether no key waits, is being processed, or is delayed.
    pub fn is_idle(&self) -> bool {
        self.0.keys.is_idle()
    }

    /// Waits for the next key.
    pub async fn next(&self) -> T {
        let (key, waited) = self.0.keys.next().await;
        let metrics = self.0.keys.observer();
        metrics.queue_duration.observe(waited.as_secs_f64());
        key
    }

    /// Ends the processing of a key; it is handled again if it was added meanwhile.
    pub fn done(&self, key: &T) {
        self.0.keys.done(key);
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
                let metrics = queue.0.keys.observer();
                let took = start.elapsed().as_secs_f64();
                metrics.work_duration.observe(took);
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
                self.0.keys.retry(key.clone());
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
