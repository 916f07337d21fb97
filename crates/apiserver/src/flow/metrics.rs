//! `apiserver_flowcontrol_*`, under kube-apiserver's names.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::kinds::Kinds;
use super::seats::{Numbers, Refusal, ShownTiming};

/// A gauge of a number that is not whole.
type Real = Gauge<f64, AtomicU64>;

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
struct PhaseOfKind {
    phase: &'static str,
    request_kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Bound {
    priority_level: String,
    bound: &'static str,
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
    /// Requests that have seats, and their seats.
    pub(super) executing: Gauge,
    pub(super) executing_seats: Gauge,
    /// Requests in queues, and the seats that they wait for.
    pub(super) waiting: Gauge,
    pub(super) waiting_seats: Gauge,
    /// Requests in the queue of each, with itself.
    pub(super) queue_length: Histogram,
    /// Watches that receive a change.
    pub(super) watchers: Histogram,
    /// How often it was the turn of one when there were not enough seats.
    pub(super) lacked_seats: Counter,
}

/// The numbers of flow control. Cloning shares them.
#[derive(Clone)]
pub struct Metrics {
    dispatched: Family<Flow, Counter>,
    rejected: Family<Refused, Counter>,
    waits: Family<Waited, Histogram>,
    estimated: Family<Flow, Histogram>,
    queue_length: Family<Flow, Histogram>,
    watchers: Family<Flow, Histogram>,
    lacked_seats: Family<Flow, Counter>,
    nominal: Family<Level, Gauge>,
    lower: Family<Level, Gauge>,
    upper: Family<Level, Gauge>,
    current: Family<Level, Gauge>,
    seats: Family<Flow, Gauge>,
    executing: Family<Flow, Gauge>,
    waiting: Family<Flow, Gauge>,
    waiting_seats: Family<Flow, Gauge>,
    executed: Family<Executed, Histogram>,
    seat_use: Family<Phase, ShownTiming>,
    request_use: Family<Phase, ShownTiming>,
    demand: Family<Level, ShownTiming>,
    kinds: Family<PhaseOfKind, ShownTiming>,
    demand_high: Family<Level, Real>,
    demand_average: Family<Level, Real>,
    demand_deviation: Family<Level, Real>,
    demand_smoothed: Family<Level, Real>,
    virtual_time: Family<Level, Real>,
    dispatch: Family<Level, Real>,
    latest: Family<Level, Real>,
    next: Family<Bound, Real>,
    discounted: Family<Bound, Real>,
    dropped: Family<Dropped, Counter>,
}

fn histogram() -> Histogram {
    Histogram::new([
        0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0,
    ])
}

fn lengths() -> Histogram {
    Histogram::new([0.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0])
}

fn watch_counts() -> Histogram {
    Histogram::new([0.0, 1.0, 10.0, 100.0, 1000.0, 10_000.0])
}

/// Upstream's buckets: up to the most seats that a request takes there.
fn widths() -> Histogram {
    Histogram::new([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 100.0])
}

impl Metrics {
    /// Adds the metrics of API priority and fairness to a registry, with upstream's names (`apiserver_flowcontrol_…`).
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Metrics {
            dispatched: Family::default(),
            rejected: Family::default(),
            waits: Family::new_with_constructor(histogram),
            estimated: Family::new_with_constructor(widths),
            queue_length: Family::new_with_constructor(lengths),
            watchers: Family::new_with_constructor(watch_counts),
            lacked_seats: Family::default(),
            nominal: Family::default(),
            lower: Family::default(),
            upper: Family::default(),
            seats: Family::default(),
            executing: Family::default(),
            waiting: Family::default(),
            waiting_seats: Family::default(),
            current: Family::default(),
            executed: Family::new_with_constructor(histogram),
            seat_use: Family::default(),
            request_use: Family::default(),
            demand: Family::default(),
            kinds: Family::default(),
            demand_high: Family::default(),
            demand_average: Family::default(),
            demand_deviation: Family::default(),
            demand_smoothed: Family::default(),
            virtual_time: Family::default(),
            dispatch: Family::default(),
            latest: Family::default(),
            next: Family::default(),
            discounted: Family::default(),
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
            "apiserver_flowcontrol_request_queue_length_after_enqueue",
            "Requests in the queue of a request, with itself, when it has entered",
            metrics.queue_length.clone(),
        );
        registry.register(
            "apiserver_flowcontrol_watch_count_samples",
            "Watches that receive the change of a mutating request",
            metrics.watchers.clone(),
        );
        registry.register(
            "apiserver_flowcontrol_request_dispatch_no_accommodation",
            "Times that it was the turn of a request when there were not enough seats",
            metrics.lacked_seats.clone(),
        );
        registry.register(
            "apiserver_flowcontrol_read_vs_write_current_requests",
            "Observations, at the end of every nanosecond, of requests that run or wait, as a part of the limit",
            metrics.kinds.clone(),
        );
        for (name, help, family) in [
            (
                "demand_seats_high_watermark",
                "Most seats that a priority level could use in the last period of ten seconds",
                &metrics.demand_high,
            ),
            (
                "demand_seats_average",
                "Average of the seats that a priority level could use in the last period of ten seconds",
                &metrics.demand_average,
            ),
            (
                "demand_seats_stdev",
                "Standard deviation of the seats that a priority level could use in the last period of ten seconds",
                &metrics.demand_deviation,
            ),
            (
                "demand_seats_smoothed",
                "Seats that a priority level could use, smoothed over periods",
                &metrics.demand_smoothed,
            ),
            (
                "current_r",
                "Virtual time of a priority level, in seat-seconds",
                &metrics.virtual_time,
            ),
            (
                "dispatch_r",
                "Virtual time when a request started last",
                &metrics.dispatch,
            ),
            (
                "latest_s",
                "Virtual time at which the request that started last was to start",
                &metrics.latest,
            ),
        ] {
            let name = format!("apiserver_flowcontrol_{name}");
            registry.register(name, help, family.clone());
        }
        registry.register(
            "apiserver_flowcontrol_next_s_bounds",
            "Least and greatest virtual time at which the first request of a queue is to start",
            metrics.next.clone(),
        );
        registry.register(
            "apiserver_flowcontrol_next_discounted_s_bounds",
            "The same, less the work that the queue is thought to have in progress",
            metrics.discounted.clone(),
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
            executing: self.executing.get_or_create(&flow).clone(),
            executing_seats: self.seats.get_or_create(&flow).clone(),
            waiting: self.waiting.get_or_create(&flow).clone(),
            waiting_seats: self.waiting_seats.get_or_create(&flow).clone(),
            queue_length: self.queue_length.get_or_create(&flow).clone(),
            watchers: self.watchers.get_or_create(&flow).clone(),
            lacked_seats: self.lacked_seats.get_or_create(&flow).clone(),
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
            let demand = &level.demand;
            for (family, value) in [
                (&self.demand_high, demand.high_watermark),
                (&self.demand_average, demand.average),
                (&self.demand_deviation, demand.deviation),
                (&self.demand_smoothed, demand.smoothed),
            ] {
                family.get_or_create(&label).set(value);
            }
            let Some(fair) = level.fair else { continue };
            self.virtual_time.get_or_create(&label).set(fair.now);
            if let Some((now, start)) = fair.dispatched {
                self.dispatch.get_or_create(&label).set(now);
                self.latest.get_or_create(&label).set(start);
            }
            for (family, bounds) in [(&self.next, fair.next), (&self.discounted, fair.discounted)] {
                let Some(bounds) = bounds else { continue };
                for (bound, value) in [("min", bounds.min), ("max", bounds.max)] {
                    let priority_level = level.name.to_string();
                    let label = Bound {
                        priority_level,
                        bound,
                    };
                    family.get_or_create(&label).set(value);
                }
            }
        }
    }

    /// Sets what is told about requests by their kind.
    pub(super) fn set_kinds(&self, kinds: &Kinds) {
        for (phase, request_kind, counted) in kinds.all() {
            let label = PhaseOfKind {
                phase,
                request_kind,
            };
            counted.show(&self.kinds.get_or_create(&label));
        }
    }
}
