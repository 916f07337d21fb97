//! The numbers of authorization, under upstream's names.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// How the call of a webhook ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Called {
    Success,
    Timeout,
    Error,
}

impl Called {
    fn name(self) -> &'static str {
        match self {
            Called::Success => "success",
            Called::Timeout => "timeout",
            Called::Error => "error",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Decided {
    decision: &'static str,
    name: String,
    r#type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    name: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Conditional {
    name: String,
    r#type: &'static str,
}

/// Counters and times of authorizers.
#[derive(Debug, Clone)]
pub struct Metrics {
    decisions: Family<Decided, Counter>,
    calls: Family<Call, Counter>,
    durations: Family<Call, Histogram>,
    open: Family<Call, Counter>,
    excluded: Family<Conditional, Counter>,
    failed: Family<Conditional, Counter>,
}

/// Prometheus' usual limits.
fn histogram() -> Histogram {
    Histogram::new([
        0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    ])
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics {
            decisions: Family::default(),
            calls: Family::default(),
            durations: Family::new_with_constructor(histogram),
            open: Family::default(),
            excluded: Family::default(),
            failed: Family::default(),
        }
    }
}

impl Metrics {
    /// Adds the numbers to a registry, which adds `_total` to the names of counters.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Metrics::default();
        let mut counters = |name: &str, help: &str, counter: &Family<Call, Counter>| {
            registry.register(name, help, counter.clone());
        };
        counters(
            "apiserver_authorization_webhook_evaluations",
            "Calls of authorization webhooks by how they ended",
            &metrics.calls,
        );
        counters(
            "apiserver_authorization_webhook_evaluations_fail_open",
            "Failed calls of authorization webhooks after which the next authorizer was asked",
            &metrics.open,
        );
        registry.register(
            "apiserver_authorization_webhook_duration_seconds",
            "Time of calls of authorization webhooks",
            metrics.durations.clone(),
        );
        registry.register(
            "apiserver_authorization_decisions",
            "Requests that authorizers have allowed or denied",
            metrics.decisions.clone(),
        );
        registry.register(
            "apiserver_authorization_match_condition_exclusions",
            "Requests that the match conditions of an authorizer leave out",
            metrics.excluded.clone(),
        );
        registry.register(
            "apiserver_authorization_match_condition_evaluation_errors",
            "Requests on which the match conditions of an authorizer failed",
            metrics.failed.clone(),
        );
        metrics
    }

    /// The counters of an authorizer for what it allows and denies.
    pub(super) fn decisions(&self, kind: &'static str, name: String) -> [Counter; 2] {
        ["allowed", "denied"].map(|decision| {
            let name = name.clone();
            let labels = Decided {
                r#type: kind,
                name,
                decision,
            };
            self.decisions.get_or_create(&labels).clone()
        })
    }

    /// A webhook was called.
    pub(super) fn called(&self, name: &str, how: Called, time: Duration) {
        let labels = call(name, how);
        self.calls.get_or_create(&labels).inc();
        let durations = self.durations.get_or_create(&labels);
        durations.observe(time.as_secs_f64());
    }

    /// A webhook could not be asked, and the next authorizer is.
    pub(super) fn failed_open(&self, name: &str, how: Called) {
        self.open.get_or_create(&call(name, how)).inc();
    }

    /// The match conditions of a webhook leave a request out.
    pub(super) fn excluded(&self, name: &str) {
        self.excluded.get_or_create(&conditional(name)).inc();
    }

    /// The match conditions of a webhook failed.
    pub(super) fn conditions_failed(&self, name: &str) {
        self.failed.get_or_create(&conditional(name)).inc();
    }
}

fn call(name: &str, how: Called) -> Call {
    Call {
        name: name.to_owned(),
        result: how.name(),
    }
}

fn conditional(name: &str) -> Conditional {
    Conditional {
        r#type: "Webhook",
        name: name.to_owned(),
    }
}
