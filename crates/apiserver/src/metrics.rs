//! `/metrics`: counts and times of requests under kube-apiserver's names.

mod process;
mod requests;
mod slis;

use std::time::Duration;

use allot_model::features::{Feature, Stage};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::error::Result;
use crate::flow::FlowControl;
use crate::reloads::Reloads;
use crate::request::{Incoming, RequestInfo};
use crate::state::ServerState;

use process::Process;
pub use process::process_metrics;
use requests::{Answered, Deprecated, InFlight, Timed};
use slis::Slis;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    group: String,
    resource: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Stored {
    resource: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Gate {
    name: &'static str,
    stage: &'static str,
}

/// The server's own numbers.
pub struct Metrics {
    /// Metrics of flow control.
    pub flow: crate::flow::metrics::Metrics,
    /// The outcomes of health checks, which have a page of their own.
    pub slis: Slis,
    /// Metrics of authentication.
    pub authentication: crate::auth::oidc::metrics::Metrics,
    /// Metrics of the tokens of service accounts.
    pub token_uses: crate::auth::token_use::Metrics,
    /// Metrics of authorization.
    pub authorization: crate::auth::metrics::Metrics,
    /// Metrics of pod security.
    pub pod_security: crate::admission::security::metrics::Metrics,
    /// Reloads of the file of `--authentication-config`.
    pub authentication_reloads: Reloads,
    /// Reloads of the file of `--authorization-config`.
    pub authorization_reloads: Reloads,
    /// Changes of the policies and webhooks in files.
    pub manifest_reloads: Reloads,
    registry: Registry,
    requests: Family<Answered, Counter>,
    deprecated: Family<Deprecated, Gauge>,
    in_flight: Family<InFlight, Gauge>,
    durations: Family<Timed, Histogram>,
    panics: Counter,
    watches: Gauge,
    objects: Family<Kind, Gauge>,
    stored: Family<Stored, Gauge>,
    gates: Family<Gate, Gauge>,
    revision: Gauge,
    process: Process,
    answer_bytes: Gauge,
    unread_bytes: Gauge,
    abandoned: Counter,
    sent: Counter,
}

/// With upstream's limits, which objectives for the latency of requests refer to.
fn histogram() -> Histogram {
    Histogram::new([
        0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
        10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
    ])
}

impl Metrics {
    /// Those of a server with this identity, nothing counted yet.
    pub fn new(server: &str) -> Self {
        let mut registry = Registry::default();
        let requests = Family::default();
        let durations = Family::<Timed, Histogram>::new_with_constructor(histogram);
        let panics = Counter::default();
        let (watches, objects, revision) = (Gauge::default(), Family::default(), Gauge::default());
        // The library adds `_total` to the names of counters.
        registry.register(
            "apiserver_request",
            "Requests by what they asked and how they ended",
            requests.clone(),
        );
        registry.register(
            "apiserver_request_panics",
            "Requests that ended in a panic",
            panics.clone(),
        );
        registry.register(
            "apiserver_request_duration_seconds",
            "Time until the answer, streams not included",
            durations.clone(),
        );
        registry.register(
            "apiserver_longrunning_requests",
            "Watches that are open",
            watches.clone(),
        );
        registry.register(
            "apiserver_resource_objects",
            "Objects stored",
            objects.clone(),
        );
        let stored = Family::default();
        registry.register(
            "apiserver_storage_objects",
            "Objects stored, by the older name that dashboards use",
            stored.clone(),
        );
        let deprecated = Family::default();
        registry.register(
            "apiserver_requested_deprecated_apis",
            "Versions that a later release removes and that were asked for",
            deprecated.clone(),
        );
        let in_flight = Family::<InFlight, Gauge>::default();
        for mutating in [true, false] {
            in_flight.get_or_create(&kind_of(mutating)).set(0);
        }
        registry.register(
            "apiserver_current_inflight_requests",
            "Requests that are being answered, streams not included",
            in_flight.clone(),
        );
        let gates = Family::default();
        registry.register(
            "kubernetes_feature_enabled",
            "Feature gates: how mature they are, and whether they are on",
            gates.clone(),
        );
        registry.register(
            "allot_store_revision",
            "Newest revision of the store",
            revision.clone(),
        );
        let process = Process::register(&mut registry);
        let (answer_bytes, unread_bytes) = (Gauge::default(), Gauge::default());
        let (abandoned, sent) = (Counter::default(), Counter::default());
        registry.register(
            "allot_apiserver_answer_bytes",
            "Memory that large answers have reserved",
            answer_bytes.clone(),
        );
        registry.register(
            "allot_apiserver_unread_bytes",
            "Small answers and pieces of streams that connections have not sent yet",
            unread_bytes.clone(),
        );
        registry.register(
            "allot_apiserver_abandoned_answers",
            "Answers that ended because their clients did not read them",
            abandoned.clone(),
        );
        registry.register(
            "allot_apiserver_streamed_bytes",
            "Bytes of large answers and streams that connections have taken",
            sent.clone(),
        );
        Metrics {
            answer_bytes,
            unread_bytes,
            abandoned,
            sent,
            slis: Slis::default(),
            flow: crate::flow::metrics::Metrics::register(&mut registry),
            authentication: crate::auth::oidc::metrics::Metrics::register(&mut registry, server),
            token_uses: crate::auth::token_use::Metrics::register(&mut registry),
            authorization: crate::auth::metrics::Metrics::register(&mut registry),
            pod_security: crate::admission::security::metrics::Metrics::register(&mut registry),
            authentication_reloads: Reloads::register(&mut registry, "authentication", server),
            authorization_reloads: Reloads::register(&mut registry, "authorization", server),
            manifest_reloads: Reloads::register(&mut registry, "manifest_admission", server),
            registry,
            process,
            requests,
            deprecated,
            in_flight,
            durations,
            panics,
            watches,
            objects,
            stored,
            gates,
            revision,
        }
    }
}

impl Metrics {
    /// Counts an answered request. `known`: there are the resource, the version and the subresource that it names.
    pub fn answered(&self, request: &Incoming, known: bool, code: u16, took: Duration) {
        let labels = Answered::of(request, known, code);
        if request.info.verb != "watch" {
            self.durations
                .get_or_create(&labels.timed())
                .observe(took.as_secs_f64());
        }
        self.requests.get_or_create(&labels).inc();
    }

    /// Records a request for a version that a release removes.
    pub fn deprecated(&self, info: &RequestInfo, removed: &str) {
        self.deprecated
            .get_or_create(&Deprecated::of(info, removed))
            .set(1);
    }

    /// Counts a request as long as the result is held.
    pub fn in_flight(&self, mutating: bool) -> Open {
        Open::of(&self.in_flight.get_or_create(&kind_of(mutating)))
    }

    /// Counts a request that ended in a panic.
    pub fn panicked(&self) {
        self.panics.inc();
    }

    /// The number of open watches, as a value to hold while one is open.
    pub fn open_watch(&self) -> Open {
        Open::of(&self.watches)
    }

    /// The text for Prometheus.
    ///
    /// # Errors
    /// None in practice: writing to memory does not fail.
    pub fn text(&self, core: &ServerState, flow: &FlowControl) -> Result<String> {
        for (collection, count) in core.backend.counts() {
            let (group, resource) = collection.split_once('/').unwrap_or(("", &collection));
            let kind = Kind {
                group: group.to_owned(),
                resource: resource.to_owned(),
            };
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.objects.get_or_create(&kind).set(count);
            let resource = match group {
                "" => resource.to_owned(),
                group => format!("{resource}.{group}"),
            };
            self.stored.get_or_create(&Stored { resource }).set(count);
        }
        let features = &core.config.features;
        for feature in Feature::ALL {
            // As in upstream's metric: a stable feature has no stage.
            let stage = match feature.spec(features.release()).map(|spec| spec.stage) {
                Some(Stage::Alpha) => "ALPHA",
                Some(Stage::Beta) => "BETA",
                Some(Stage::Stable) => "",
                Some(Stage::Deprecated) => "DEPRECATED",
                Some(Stage::PreAlpha) | None => continue,
            };
            let name = feature.name();
            let gate = self.gates.get_or_create(&Gate { name, stage });
            gate.set(i64::from(features.enabled(*feature)));
        }
        self.revision
            .set(i64::try_from(core.backend.revision()).unwrap_or(i64::MAX));
        flow.report();
        let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        self.answer_bytes.set(number(core.answers.used()));
        self.unread_bytes.set(number(core.unread.held()));
        let counters = &core.counters;
        self.abandoned.inc_by(
            counters
                .times_abandoned()
                .saturating_sub(self.abandoned.get()),
        );
        self.sent
            .inc_by(counters.bytes_sent().saturating_sub(self.sent.get()));
        self.process.read();
        let mut out = String::new();
        prometheus_client::encoding::text::encode(&mut out, &self.registry)
            .map_err(|error| crate::error::ApiError::unknown(error.to_string()))?;
        Ok(out)
    }
}

/// The label of requests that are counted while they are answered.
fn kind_of(mutating: bool) -> InFlight {
    InFlight {
        request_kind: match mutating {
            true => "mutating",
            false => "readOnly",
        },
    }
}

/// Counts a watch or a request as long as it lives.
pub struct Open(Gauge);

impl Open {
    fn of(gauge: &Gauge) -> Self {
        gauge.inc();
        Open(gauge.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}
