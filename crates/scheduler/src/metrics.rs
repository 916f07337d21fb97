//! Metrics with upstream's names, in a registry that the caller serves.

mod fullness;
mod points;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use allot_allocator::Fullness;
use fullness::Devices;
use points::Points;
pub(crate) use points::{End, Point};

use crate::device_allocator::Work;
use crate::queue::{Counts, Moved, Rejected};

/// The result of an attempt, a label value of the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The pod was bound.
    Scheduled,
    /// No node is feasible.
    Unschedulable,
    /// An error occurred.
    Error,
}

impl Outcome {
    fn name(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Unschedulable => "unschedulable",
            Self::Error => "error",
        }
    }
}

type One = [(&'static str, String); 1];
type Two = [(&'static str, String); 2];
type Three = [(&'static str, String); 3];
type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// The metrics of a scheduler, with their registry; cheap to clone.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Mutex<Registry>,
    attempts: Family<Two, Counter>,
    attempt_duration: Histograms<Two>,
    algorithm_duration: Histogram,
    sli_duration: Histograms<One>,
    pod_attempts: Histogram,
    /// Active, backoff, unschedulable, gated.
    pending: [Gauge; 4],
    /// Nodes, assumed pods.
    cache_size: [Gauge; 2],
    preemptions: Counter,
    victims: Histogram,
    claim_creates: Family<One, Counter>,
    incoming: Family<[(&'static str, &'static str); 2], Counter>,
    unschedulable: Family<Two, Gauge>,
    condition_allocations: Family<Three, Counter>,
    condition_waits: Histograms<Three>,
    bind_conflicts: Counter,
    double_allocations: Counter,
    /// Nodes, steps, given up.
    work: [Counter; 3],
    points: Points,
    devices: Devices,
}

fn millisecond() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 15))
}

fn sli() -> Histogram {
    Histogram::new(exponential_buckets(0.01, 2.0, 20))
}

fn waits() -> Histogram {
    Histogram::new(exponential_buckets(0.1, 2.0, 14))
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Registers the metrics.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let attempts = Family::default();
        registry.register(
            "scheduler_schedule_attempts",
            "Attempts to schedule pods, by result",
            attempts.clone(),
        );
        let attempt_duration: Histograms<Two> = Family::new_with_constructor(millisecond);
        registry.register(
            "scheduler_scheduling_attempt_duration_seconds",
            "Duration of a scheduling attempt, binding included",
            attempt_duration.clone(),
        );
        let algorithm_duration = millisecond();
        registry.register(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Duration of the scheduling algorithm",
            algorithm_duration.clone(),
        );
        let sli_duration: Histograms<One> = Family::new_with_constructor(sli);
        registry.register(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "Time from entering the queue to being bound, by number of attempts",
            sli_duration.clone(),
        );
        let pod_attempts = Histogram::new(exponential_buckets(1.0, 2.0, 5));
        registry.register(
            "scheduler_pod_scheduling_attempts",
            "Attempts until a pod was bound",
            pod_attempts.clone(),
        );
        let pending: Family<One, Gauge> = Family::default();
        registry.register(
            "scheduler_pending_pods",
            "Pods in the scheduling queue, by part",
            pending.clone(),
        );
        let cache_size: Family<One, Gauge> = Family::default();
        registry.register(
            "scheduler_cache_size",
            "Objects in the cache",
            cache_size.clone(),
        );
        let preemptions = Counter::default();
        registry.register(
            "scheduler_preemption_attempts",
            "Preemptions",
            preemptions.clone(),
        );
        let victims = Histogram::new(exponential_buckets(1.0, 2.0, 7));
        registry.register(
            "scheduler_preemption_victims",
            "Victims of a preemption",
            victims.clone(),
        );
        let claim_creates = Family::default();
        registry.register(
            "scheduler_resourceclaim_creates",
            "Claims created for extended resources",
            claim_creates.clone(),
        );
        let incoming = Family::default();
        registry.register(
            "scheduler_queue_incoming_pods",
            "Pods added to a part of the scheduling queue, by event",
            incoming.clone(),
        );
        let unschedulable = Family::default();
        registry.register(
            "scheduler_unschedulable_pods",
            "Unschedulable pods by plugin; a pod counts for every plugin that rejected it",
            unschedulable.clone(),
        );
        let condition_allocations = Family::default();
        registry.register(
            "scheduler_dra_bindingconditions_allocations",
            "Allocations with binding conditions, by how they ended",
            condition_allocations.clone(),
        );
        let condition_waits: Histograms<Three> = Family::new_with_constructor(waits);
        registry.register(
            "scheduler_dra_bindingconditions_wait_duration_seconds",
            "Time waited for binding conditions",
            condition_waits.clone(),
        );
        let bind_conflicts = Counter::default();
        registry.register(
            "scheduler_allot_claim_conflicts",
            "Writes of claims that were refused as conflicts",
            bind_conflicts.clone(),
        );
        let double_allocations = Counter::default();
        registry.register(
            "scheduler_allot_contested_claims",
            "Double allocations: claims that got a device which another claim held before",
            double_allocations.clone(),
        );
        let work = [
            ("nodes", "Nodes for which the allocator searched devices"),
            ("steps", "Decisions that the allocator's searches took"),
            ("gave_up", "Searches of the allocator that gave up"),
        ];
        let work = work.map(|(name, help)| {
            let counter = Counter::default();
            let name = format!("scheduler_allot_allocator_{name}");
            registry.register(name, help, counter.clone());
            counter
        });
        let points = Points::register(&mut registry);
        let devices = Devices::register(&mut registry);
        // Set frequently, so looked up once.
        let one = |family: &Family<One, Gauge>, label, value: &str| {
            family.get_or_create(&[(label, value.to_owned())]).clone()
        };
        let pending = ["active", "backoff", "unschedulable", "gated"]
            .map(|queue| one(&pending, "queue", queue));
        let cache_size = ["nodes", "assumed_pods"].map(|kind| one(&cache_size, "type", kind));
        Self(Arc::new(Inner {
            registry: Mutex::new(registry),
            attempts,
            attempt_duration,
            algorithm_duration,
            sli_duration,
            pod_attempts,
            pending,
            cache_size,
            preemptions,
            victims,
            claim_creates,
            incoming,
            unschedulable,
            condition_allocations,
            condition_waits,
            bind_conflicts,
            double_allocations,
            work,
            points,
            devices,
        }))
    }

    /// The metrics as text in the format of OpenMetrics.
    pub fn encode(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = prometheus_client::encoding::text::encode(&mut out, &self.0.registry.lock());
        out
    }

    /// Records an attempt and its duration.
    pub(crate) fn attempt(&self, profile: &str, outcome: Outcome, taken: Duration) {
        let labels = [
            ("result", outcome.name().to_owned()),
            ("profile", profile.to_owned()),
        ];
        self.0.attempts.get_or_create(&labels).inc();
        self.0
            .attempt_duration
            .get_or_create(&labels)
            .observe(taken.as_secs_f64());
    }

    /// Records the duration of the scheduling algorithm.
    pub(crate) fn decided(&self, taken: Duration) {
        self.0.algorithm_duration.observe(taken.as_secs_f64());
    }

    /// Records that a pod was bound in its `attempts`th attempt, `waited` after it was added to the queue.
    pub(crate) fn bound(&self, attempts: u32, waited: Duration) {
        let label = if attempts >= 16 {
            "16+".to_owned()
        } else {
            attempts.to_string()
        };
        self.0
            .sli_duration
            .get_or_create(&[("attempts", label)])
            .observe(waited.as_secs_f64());
        self.0.pod_attempts.observe(f64::from(attempts));
    }

    /// Records that a pod with claims was bound, `waited` after it was added to the queue.
    pub(crate) fn allocated(&self, waited: Duration) {
        self.0.devices.allocated(waited);
    }

    /// Sets the gauges of devices by driver, class and state.
    pub(crate) fn full(&self, census: BTreeMap<(String, String), Fullness>) {
        self.0.devices.show(census);
    }

    /// Sets the gauges of the queue and of the cache.
    pub(crate) fn sizes(&self, queue: Counts, nodes: usize, assumed: usize) {
        let set = |gauge: &Gauge, n: usize| {
            gauge.set(i64::try_from(n).unwrap_or(i64::MAX));
        };
        let queued = [
            queue.active,
            queue.backoff,
            queue.unschedulable,
            queue.gated,
        ];
        for (gauge, n) in self.0.pending.iter().zip(queued) {
            set(gauge, n);
        }
        for (gauge, n) in self.0.cache_size.iter().zip([nodes, assumed]) {
            set(gauge, n);
        }
    }

    /// Pods moved between parts of the queue, or the plugins that reject pods changed.
    pub(crate) fn moved(&self, moved: Moved, rejected: Option<&Rejected>) {
        for ((event, queue), count) in moved {
            let labels = [("event", event), ("queue", queue)];
            self.0.incoming.get_or_create(&labels).inc_by(count);
        }
        for ((plugin, profile), count) in rejected.into_iter().flatten() {
            let labels = [
                ("plugin", plugin.name().to_owned()),
                ("profile", profile.to_string()),
            ];
            let gauge = self.0.unschedulable.get_or_create(&labels);
            gauge.set(i64::try_from(*count).unwrap_or(i64::MAX));
        }
    }

    /// Adds the allocator's work since the last call.
    pub(crate) fn record_work(&self, work: Work) {
        let amounts = [work.nodes, work.steps, work.gave_up];
        for (counter, amount) in self.0.work.iter().zip(amounts) {
            counter.inc_by(amount);
        }
    }

    /// Records the number of victims of a preemption.
    pub(crate) fn preempted(&self, victims: usize) {
        self.0.preemptions.inc();
        self.0.victims.observe(victims as f64);
    }

    /// Records whether an extended resource claim could be created.
    pub(crate) fn claim_created(&self, success: bool) {
        let status = if success { "success" } else { "failure" };
        self.0
            .claim_creates
            .get_or_create(&[("status", status.to_owned())])
            .inc();
    }

    /// Records the outcome of the binding conditions of a driver's devices.
    pub(crate) fn conditions(&self, profile: &str, driver: &str, status: &str, waited: Duration) {
        let labels = [
            ("profile", profile.to_owned()),
            ("driver", driver.to_owned()),
            ("status", status.to_owned()),
        ];
        self.0.condition_allocations.get_or_create(&labels).inc();
        self.0
            .condition_waits
            .get_or_create(&labels)
            .observe(waited.as_secs_f64());
    }

    /// Records the duration and result of an extension point.
    pub(crate) fn point(&self, point: Point, profile: &str, end: End, taken: Duration) {
        self.0.points.observe(point, profile, end, taken);
    }

    /// Counts a write of a claim that got a conflict.
    pub(crate) fn conflict(&self) {
        self.0.bind_conflicts.inc();
    }

    /// Counts a double allocation.
    pub(crate) fn double_allocated(&self) {
        self.0.double_allocations.inc();
    }
}
