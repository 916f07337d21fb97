//! `apiserver_flowcontrol_*`, under kube-apiserver's names.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::seats::{Numbers, Refusal, Timing};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Level {
    priority_level: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Flow {
    priority_level: String,
    flow_schema: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Waited {
    priority_level: String,
    flow_schema: String,
    execute: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Refused {
    priority_level: String,
    flow_schema: String,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Dropped {
    request_kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Phase {
    phase: &'static str,
    priority_level: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Executed {
    priority_level: String,
    flow_schema: String,
    r#type: &'static str,
}

/// Counters of a schema: looked up once, not with every request.
pub(super) struct Counted {
    pub(super) dispatched: Counter,
    pub(super) estimated: Histogram,
    /// Seconds of watches until they have begun.
    pub(super) begun: Histogram,
    /// Seconds of other requests.
    pub(super) executed: Histogram,
}

/// The numbers of flow control. Cloning shares them.
#[derive(Clone)]
pub struct Metrics {
    dispatched: Family<Flow, Counter>,
    rejected: Family<Refused, Counter>,
    waits: Family<Waited, Histogram>,
    estimated: Family<Flow, Histogram>,
    nominal: Family<Level, Gauge>,
    lower: Family<Level, Gauge>,
    upper: Family<Level, Gauge>,
    seats: Family<Level, Gauge>,
    executing: Family<Level, Gauge>,
    waiting: Family<Level, Gauge>,
    waiting_seats: Family<Level, Gauge>,
    current: Family<Level, Gauge>,
    executed: Family<Executed, Histogram>,
    seat_use: Family<Phase, Timing, fn() -> Timing>,
    request_use: Family<Phase, Timing, fn() -> Timing>,
    demand: Family<Level, Timing, fn() -> Timing>,
    dropped: Family<Dropped, Counter>,
}

fn histogram() -> Histogram {
    Histogram::new([
        0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0,
    ])
}

/// Upstream's buckets: up to the most seats that a request takes there.
fn widths() -> Histogram {
    Histogram::new([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 100.0])
}

/// To show what a level has counted.
fn no_time() -> Timing {
    Timing::new(&[])
}

impl Metrics {
    /// Adds the metrics of API priority and fairness to a registry, with upstream's names (`apiserver_flowcontrol_…`).
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Metrics {
            dispatched: Family::default(),
            rejected: Family::default(),
            waits: Family::new_with_constructor(histogram),
            estimated: Family::new_with_constructor(widths),
            nominal: Family::default(),
            lower: Family::default(),
            upper: Family::default(),
            seats: Family::default(),
            executing: Family::default(),
            waiting: Family::default(),
            waiting_seats: Family::default(),
            current: Family::default(),
            executed: Family::new_with_constructor(histogram),
            seat_use: Family::new_with_constructor(no_time),
            request_use: Family::new_with_constructor(no_time),
            demand: Family::new_with_constructor(no_time),
            dropped: Family::default(),
        };
        registry.register(
            "apiserver_flowcontrol_dispatched_requests",
            "Requests that priority and fairness has let through",
            metrics.dispatched.clone(),
        );
        registry.register(
            "apiserver_flowcontrol_rejected_requests",
            "Requests that priority and fairness has refused",
            metrics.rejected.clone(),
        );
        registry.register(
            "apiserver_flowcontrol_request_wait_duration_seconds",
            "Time that requests have waited in queues",
            metrics.waits.clone(),
        );
        registry.register(
            "apiserver_flowcontrol_work_estimated_seats",
            "Seats that requests are thought to need",
            metrics.estimated.clone(),
        );
        registry.register(
            "apiserver_flowcontrol_lower_limit_seats",
            "Seats that are kept for a priority level",
            metrics.lower.clone(),
        );
        registry.register(
            "apiserver_flowcontrol_upper_limit_seats",
            "Most seats that a priority level can have",
            metrics.upper.clone(),
        );
        registry.register(
            "apiserver_flowcontrol_current_inqueue_seats",
            "Seats that requests in queues wait for",
            metrics.waiting_seats.clone(),
        );
        registry.register(
            "apiserver_flowcontrol_current_limit_seats",
            "Seats that a priority level can have now",
            metrics.current.clone(),
        );
        registry.register(
            "apiserver_flowcontrol_request_execution_seconds",
            "Time that requests have had their seats; of a watch, until it has begun",
            metrics.executed.clone(),
        );
        registry.register(
            "apiserver_flowcontrol_priority_level_seat_utilization",
            "Observations, at the end of every nanosecond, of the part of a priority level's seats that is in use",
            metrics.seat_use.clone(),
        );
        registry.register(
            "apiserver_flowcontrol_priority_level_request_utilization",
            "Observations, at the end of every nanosecond, of requests that run or wait, as a part of their limit",
            metrics.request_use.clone(),
        );
        registry.register(
            "apiserver_flowcontrol_demand_seats",
            "Observations, at the end of every nanosecond, of the seats that a priority level could use, as a part of its own",
            metrics.demand.clone(),
        );
        registry.register(
            "apiserver_flowcontrol_nominal_limit_seats",
            "Seats of a priority level's own",
            metrics.nominal.clone(),
        );
        registry.register(
            "apiserver_flowcontrol_current_executing_seats",
            "Seats in use",
            metrics.seats.clone(),
        );
        registry.register(
            "apiserver_flowcontrol_current_executing_requests",
            "Requests that have seats",
            metrics.executing.clone(),
        );
        registry.register(
            "apiserver_flowcontrol_current_inqueue_requests",
            "Requests that wait in queues",
            metrics.waiting.clone(),
        );
        registry.register(
            "apiserver_dropped_requests",
            "Requests that were refused because there were too many",
            metrics.dropped.clone(),
        );
        metrics
    }

    /// The counters of a schema.
    pub(super) fn counted(&self, level: &str, schema: &str) -> Counted {
        let flow = Flow {
            priority_level: level.to_owned(),
            flow_schema: schema.to_owned(),
        };
        let executed = |r#type| Executed {
            priority_level: level.to_owned(),
            flow_schema: schema.to_owned(),
            r#type,
        };
        // One after the other: what a family gives is locked to the end of the statement.
        let begun = self.executed.get_or_create(&executed("watch")).clone();
        let executed = self.executed.get_or_create(&executed("regular")).clone();
        Counted {
            dispatched: self.dispatched.get_or_create(&flow).clone(),
            estimated: self.estimated.get_or_create(&flow).clone(),
            begun,
            executed,
        }
    }

    pub(super) fn refused(&self, level: &str, schema: &str, reason: Refusal) {
        let refused = Refused {
            priority_level: level.to_owned(),
            flow_schema: schema.to_owned(),
            reason: reason.name(),
        };
        self.rejected.get_or_create(&refused).inc();
    }

    pub(super) fn waited(&self, level: &str, schema: &str, execute: bool, seconds: f64) {
        let waited = Waited {
            priority_level: level.to_owned(),
            flow_schema: schema.to_owned(),
            execute: if execute { "true" } else { "false" },
        };
        self.waits.get_or_create(&waited).observe(seconds);
    }

    pub(super) fn dropped(&self, mutating: bool) {
        let request_kind = if mutating { "mutating" } else { "readOnly" };
        self.dropped.get_or_create(&Dropped { request_kind }).inc();
    }

    /// Sets the gauges that are read at a scrape.
    pub(super) fn set(&self, numbers: impl Iterator<Item = Numbers>) {
        let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        for level in numbers {
            let label = Level {
                priority_level: level.name.to_string(),
            };
            let phase = |phase| Phase {
                phase,
                priority_level: level.name.to_string(),
            };
            let (executing, waiting) = (phase("executing"), phase("waiting"));
            let usage = &level.usage;
            self.seat_use.get_or_create(&executing).show(&usage.seats);
            self.request_use
                .get_or_create(&executing)
                .show(&usage.executing);
            self.request_use
                .get_or_create(&waiting)
                .show(&usage.waiting);
            self.demand.get_or_create(&label).show(&usage.demand);
            self.current
                .get_or_create(&label)
                .set(number(level.current));
            self.nominal
                .get_or_create(&label)
                .set(number(level.nominal));
            self.lower.get_or_create(&label).set(number(level.lower));
            self.upper.get_or_create(&label).set(number(level.upper));
            self.seats.get_or_create(&label).set(number(level.used));
            self.waiting_seats
                .get_or_create(&label)
                .set(number(level.waiting_seats));
            self.executing
                .get_or_create(&label)
                .set(number(level.executing));
            self.waiting
                .get_or_create(&label)
                .set(number(level.waiting));
        }
    }
}
