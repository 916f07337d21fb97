//! The numbers of authentication by issuers of tokens, under upstream's names.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::reloads::hash;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Judged {
    result: &'static str,
    jwt_issuer_hash: String,
}

/// Counters and times.
#[derive(Debug, Clone)]
pub struct Metrics {
    latencies: Family<Judged, Histogram>,
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

impl Metrics {
    /// Adds the numbers to a registry, which adds `_total` to the names of counters.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Metrics {
            latencies: Family::new_with_constructor(histogram),
        };
        registry.register(
            "apiserver_authentication_jwt_authenticator_latency_seconds",
            "Time in which tokens of issuers were judged",
            metrics.latencies.clone(),
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
}
