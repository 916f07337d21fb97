//! The metrics of all controllers, with upstream's names.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};

/// A registry that can be shared and printed.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Mutex<Registry>,
    queues: Queues,
}

type Labels = [(&'static str, String); 1];

fn histogram() -> Histogram {
    Histogram::new(exponential_buckets(1e-8, 10.0, 12))
}

#[derive(Debug, Clone)]
struct Queues {
    depth: Family<Labels, Gauge>,
    adds: Family<Labels, Counter>,
    retries: Family<Labels, Counter>,
    queue_duration: Family<Labels, Histogram, fn() -> Histogram>,
    work_duration: Family<Labels, Histogram, fn() -> Histogram>,
}

/// The metrics of one work queue.
#[derive(Clone, Debug)]
pub struct QueueMetrics {
    pub(crate) depth: Gauge,
    pub(crate) adds: Counter,
    pub(crate) retries: Counter,
    pub(crate) queue_duration: Histogram,
    pub(crate) work_duration: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// An empty registry with the work queue families.
    pub fn new() -> Self {
        let queues = Queues {
            depth: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            queue_duration: Family::new_with_constructor(histogram as fn() -> Histogram),
            work_duration: Family::new_with_constructor(histogram as fn() -> Histogram),
        };
        let mut registry = Registry::default();
        registry.register("workqueue_depth", "Keys that wait", queues.depth.clone());
        registry.register("workqueue_adds", "Keys added", queues.adds.clone());
        registry.register("workqueue_retries", "Keys retried", queues.retries.clone());
        registry.register(
            "workqueue_queue_duration_seconds",
            "Time a key waits",
            queues.queue_duration.clone(),
        );
        registry.register(
            "workqueue_work_duration_seconds",
            "Time the work on a key takes",
            queues.work_duration.clone(),
        );
        Self(Arc::new(Inner {
            registry: Mutex::new(registry),
            queues,
        }))
    }

    /// The metrics of the queue of that name.
    pub fn queue(&self, name: &str) -> QueueMetrics {
        let labels = [("name", name.to_owned())];
        let queues = &self.0.queues;
        QueueMetrics {
            depth: queues.depth.get_or_create(&labels).clone(),
            adds: queues.adds.get_or_create(&labels).clone(),
            retries: queues.retries.get_or_create(&labels).clone(),
            queue_duration: queues.queue_duration.get_or_create(&labels).clone(),
            work_duration: queues.work_duration.get_or_create(&labels).clone(),
        }
    }

    /// Registers a metric (counters without the suffix `_total`, which the format adds).
    pub fn register(&self, name: &str, help: &str, metric: impl Metric) {
        self.0.registry.lock().register(name, help, metric);
    }

    /// Everything in the text format of Prometheus.
    pub fn encode(&self) -> String {
        let mut out = String::new();
        // Writing to a String does not fail.
        let _ = prometheus_client::encoding::text::encode(&mut out, &self.0.registry.lock());
        out
    }
}
