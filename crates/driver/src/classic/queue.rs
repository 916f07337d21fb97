//! The work queue of a classic controller: back-off and metrics are client-go's.

use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use allot_client::work_queue::{Backoff, Bucket, Observer, WorkQueue};

/// client-go's defaults.
const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(5),
    longest: Duration::from_secs(1000),
    bucket: Some(Bucket {
        size: 100,
        period: Duration::from_millis(100),
    }),
};

/// Each key is handled by one worker at a time, and retried with a growing delay.
pub(super) type Queue<K> = WorkQueue<K, Counts>;

/// What happened to the keys of a queue.
#[derive(Debug, Default)]
pub(super) struct Counts {
    adds: AtomicU64,
    retries: AtomicU64,
}

impl Observer for Counts {
    fn added(&self) {
        self.adds.fetch_add(1, Ordering::Relaxed);
    }

    fn retried(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }
}

/// An empty queue.
pub(super) fn new<K: Clone + Eq + Hash + Ord>() -> Queue<K> {
    WorkQueue::new(BACKOFF, Counts::default())
}

/// Metrics in the Prometheus text format, with client-go's names for queues.
pub(super) fn metrics<K: Clone + Eq + Hash + Ord>(queue: &Queue<K>, name: &str) -> String {
    let (depth, working) = queue.lengths();
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let Counts { adds, retries } = queue.observer();
    let metrics = [
        (
            "workqueue_adds_total",
            "counter",
            "Additions to the queue",
            count(adds),
        ),
        (
            "workqueue_retries_total",
            "counter",
            "Additions after a failure",
            count(retries),
        ),
        ("workqueue_depth", "gauge", "Keys that wait", depth as u64),
        (
            "workqueue_unfinished_work",
            "gauge",
            "Keys that are worked on",
            working as u64,
        ),
    ];
    let metrics = metrics.map(|(metric, kind, help, value)| {
        format!(
            "# HELP {metric} {help}\n# TYPE {metric} {kind}\n{metric}{{name={name:?}}} {value}\n"
        )
    });
    metrics.concat()
}
