//! The numbers of authentication by issuers of tokens, under upstream's names.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use data_encoding::HEXLOWER;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Judged {
    result: &'static str,
    jwt_issuer_hash: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reload {
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Content {
    hash: String,
}

/// Counters and times.
#[derive(Debug, Clone)]
pub struct Metrics {
    latencies: Family<Judged, Histogram>,
    reloads: Family<Reload, Counter>,
    reloaded_at: Family<Reload, Gauge<f64, AtomicU64>>,
    content: Family<Content, Gauge>,
}

/// Upstream's limits.
fn histogram() -> Histogram {
    Histogram::new([
        0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    ])
}

fn outcome(succeeded: bool) -> &'static str {
    if succeeded { "success" } else { "failure" }
}

/// Hashes tell texts apart without showing them.
fn hash(text: &[u8]) -> String {
    let hash = ring::digest::digest(&ring::digest::SHA256, text);
    format!("sha256:{}", HEXLOWER.encode(hash.as_ref()))
}

impl Metrics {
    /// Adds the numbers to a registry, which adds `_total` to the names of counters.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Metrics {
            latencies: Family::new_with_constructor(histogram),
            reloads: Family::default(),
            reloaded_at: Family::default(),
            content: Family::default(),
        };
        registry.register(
            "apiserver_authentication_jwt_authenticator_latency_seconds",
            "Time in which tokens of issuers were judged",
            metrics.latencies.clone(),
        );
        registry.register(
            "apiserver_authentication_config_controller_automatic_reloads",
            "Changes of the file of issuers by whether they were taken over",
            metrics.reloads.clone(),
        );
        registry.register(
            "apiserver_authentication_config_controller_automatic_reload_last_timestamp_seconds",
            "When the file of issuers last changed, by whether it was taken over",
            metrics.reloaded_at.clone(),
        );
        registry.register(
            "apiserver_authentication_config_controller_last_config_info",
            "The content of the file of issuers that counts, by its hash",
            metrics.content.clone(),
        );
        metrics
    }

    /// A token of an issuer was judged.
    pub(super) fn judged(&self, issuer: &str, succeeded: bool, time: Duration) {
        let labels = Judged {
            result: outcome(succeeded),
            jwt_issuer_hash: hash(issuer.as_bytes()),
        };
        self.latencies
            .get_or_create(&labels)
            .observe(time.as_secs_f64());
    }

    /// The file of issuers has changed.
    pub(crate) fn reloaded(&self, succeeded: bool) {
        let labels = Reload {
            status: outcome(succeeded),
        };
        self.reloads.get_or_create(&labels).inc();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs_f64();
        self.reloaded_at.get_or_create(&labels).set(now);
    }

    /// This content of the file of issuers counts.
    pub(crate) fn in_use(&self, content: &[u8]) {
        self.content.clear();
        let hash = hash(content);
        self.content.get_or_create(&Content { hash }).set(1);
    }
}
