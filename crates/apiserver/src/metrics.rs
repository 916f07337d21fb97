//! `/metrics`: counts and times of requests under kube-apiserver's names.

mod slis;

use std::sync::atomic::AtomicU64;
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
use crate::registry::Resource;
use crate::request::RequestInfo;
use crate::state::ServerState;

use slis::Slis;

/// What a request was about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    verb: String,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Timed {
    verb: String,
    group: String,
    resource: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    group: String,
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
    /// Metrics of pod security.
    pub pod_security: crate::admission::security::metrics::Metrics,
    registry: Registry,
    requests: Family<Request, Counter>,
    durations: Family<Timed, Histogram>,
    panics: Counter,
    watches: Gauge,
    objects: Family<Kind, Gauge>,
    gates: Family<Gate, Gauge>,
    revision: Gauge,
    cpu: Counter<f64, AtomicU64>,
    memory: Gauge,
    answer_bytes: Gauge,
    unread_bytes: Gauge,
    abandoned: Counter,
    sent: Counter,
}

fn histogram() -> Histogram {
    Histogram::new([
        0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 60.0,
    ])
}

impl Default for Metrics {
    fn default() -> Self {
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
            "apiserver_storage_objects",
            "Objects stored",
            objects.clone(),
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
        let (cpu, memory) = (Counter::default(), Gauge::default());
        registry.register(
            "process_cpu_seconds",
            "CPU time of the process",
            cpu.clone(),
        );
        registry.register(
            "process_resident_memory_bytes",
            "Memory of the process",
            memory.clone(),
        );
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
            pod_security: crate::admission::security::metrics::Metrics::register(&mut registry),
            registry,
            cpu,
            memory,
            requests,
            durations,
            panics,
            watches,
            objects,
            gates,
            revision,
        }
    }
}

impl Metrics {
    /// Counts an answered request. What the server does not serve is no label: names, versions and subresources are chosen by
    /// clients, and their number has no limit.
    pub fn answered(
        &self,
        info: &RequestInfo,
        known: Option<&Resource>,
        code: u16,
        took: Duration,
    ) {
        let served = known.filter(|resource| {
            let is_whole = info.subresource.is_empty();
            let has_part = || resource.subresource(&info.subresource).is_some();
            resource.version(&info.version).is_some() && (is_whole || has_part())
        });
        let text = |text: &str| served.map_or_else(String::new, |_| text.to_owned());
        let labels = Request {
            verb: verb(&info.verb),
            group: text(&info.group),
            version: text(&info.version),
            resource: text(&info.resource),
            subresource: text(&info.subresource),
            code,
        };
        if info.verb != "watch" {
            let timed = Timed {
                verb: labels.verb.clone(),
                group: labels.group.clone(),
                resource: labels.resource.clone(),
            };
            self.durations
                .get_or_create(&timed)
                .observe(took.as_secs_f64());
        }
        self.requests.get_or_create(&labels).inc();
    }

    /// Counts a request that ended in a panic.
    pub fn panicked(&self) {
        self.panics.inc();
    }

    /// The number of open watches, as a value to hold while one is open.
    pub fn open_watch(&self) -> OpenWatch {
        self.watches.inc();
        OpenWatch(self.watches.clone())
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
            self.objects
                .get_or_create(&kind)
                .set(i64::try_from(count).unwrap_or(i64::MAX));
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
        if let Some((cpu, memory)) = process() {
            // The counter supports increments only.
            self.cpu.inc_by((cpu - self.cpu.get()).max(0.0));
            self.memory.set(memory);
        }
        let mut out = String::new();
        prometheus_client::encoding::text::encode(&mut out, &self.registry)
            .map_err(|error| crate::error::ApiError::unknown(error.to_string()))?;
        Ok(out)
    }
}

/// CPU seconds and resident bytes of this process, where the system has a /proc.
fn process() -> Option<(f64, i64)> {
    /// The unit of CPU times in /proc, on every architecture that Linux runs on today.
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name may contain anything; the numbers follow the last parenthesis.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    let cpu = (ticks()? + ticks()?) / TICKS_PER_SECOND;
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kib: i64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some((cpu, kib * 1024))
}

/// Counts a watch as long as it lives.
pub struct OpenWatch(Gauge);

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The verb as a label. For non-resource requests it is the method, which a client can choose freely.
fn verb(verb: &str) -> String {
    const KNOWN: [&str; 12] = [
        "get",
        "list",
        "watch",
        "create",
        "update",
        "patch",
        "delete",
        "deletecollection",
        "head",
        "options",
        "post",
        "put",
    ];
    match KNOWN.contains(&verb) {
        true => verb.to_ascii_uppercase(),
        false => "OTHER".to_owned(),
    }
}
