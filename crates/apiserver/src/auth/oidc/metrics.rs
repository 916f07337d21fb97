//! The numbers of authentication by issuers of tokens, under upstream's names.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::reloads::{hash, now};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Judged {
    jwt_issuer_hash: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Fetched {
    apiserver_id_hash: String,
    jwt_issuer_hash: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KeySet {
    apiserver_id_hash: String,
    hash: String,
    jwt_issuer_hash: String,
}

/// Counters and times.
#[derive(Debug, Clone)]
pub struct Metrics {
    latencies: Family<Judged, Histogram>,
    fetched_at: Family<Fetched, Gauge<f64, AtomicU64>>,
    key_sets: Family<KeySet, Gauge>,
    /// The hashes of the issuers that count, with that of their keys.
    issuers: Arc<Mutex<HashMap<String, Option<String>>>>,
    /// The hash of the name of the server.
    server: String,
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
    pub fn register(registry: &mut Registry, server: &str) -> Self {
        let metrics = Metrics {
            latencies: Family::new_with_constructor(histogram),
            fetched_at: Family::default(),
            key_sets: Family::default(),
            issuers: Arc::default(),
            server: hash(server.as_bytes()),
        };
        registry.register(
            "apiserver_authentication_jwt_authenticator_latency_seconds",
            "Time in which tokens of issuers were judged",
            metrics.latencies.clone(),
        );
        registry.register(
            "apiserver_authentication_jwt_authenticator_jwks_fetch_last_timestamp_seconds",
            "When the keys of an issuer were last asked for, by whether it answered with keys",
            metrics.fetched_at.clone(),
        );
        registry.register(
            "apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info",
            "The document with the keys of an issuer, by its hash",
            metrics.key_sets.clone(),
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

    /// These issuers count from now on. What is told about the keys of others goes.
    pub(super) fn uses<'u>(&self, issuers: impl Iterator<Item = &'u str>) {
        let mut known = self.issuers.lock();
        let mut before = std::mem::take(&mut *known);
        for issuer in issuers {
            let issuer = hash(issuer.as_bytes());
            let keys = before.remove(&issuer).flatten();
            known.insert(issuer, keys);
        }
        for (issuer, keys) in before {
            for result in [true, false].map(outcome) {
                self.fetched_at.remove(&self.fetch(result, &issuer));
            }
            if let Some(keys) = keys {
                self.key_sets.remove(&self.key_set(&issuer, &keys));
            }
        }
    }

    /// Counts the requests for the keys of an issuer.
    pub(super) fn fetches(&self, issuer: &str) -> Fetches {
        Fetches {
            issuer: hash(issuer.as_bytes()),
            metrics: self.clone(),
        }
    }

    fn fetch(&self, result: &'static str, issuer: &str) -> Fetched {
        Fetched {
            result,
            jwt_issuer_hash: issuer.to_owned(),
            apiserver_id_hash: self.server.clone(),
        }
    }

    fn key_set(&self, issuer: &str, keys: &str) -> KeySet {
        KeySet {
            jwt_issuer_hash: issuer.to_owned(),
            apiserver_id_hash: self.server.clone(),
            hash: keys.to_owned(),
        }
    }
}

/// The requests for the keys of one issuer.
#[derive(Debug)]
pub(super) struct Fetches {
    /// Its hash.
    issuer: String,
    metrics: Metrics,
}

impl Fetches {
    /// Its keys were asked for: the document with them, if there is one. Nothing is told of an issuer that does not count
    /// any more.
    pub(super) fn fetched(&self, document: Option<&[u8]>) {
        let metrics = &self.metrics;
        let mut issuers = metrics.issuers.lock();
        let Some(known) = issuers.get_mut(&self.issuer) else {
            return;
        };
        let labels = metrics.fetch(outcome(document.is_some()), &self.issuer);
        metrics.fetched_at.get_or_create(&labels).set(now());
        let Some(keys) = document.map(hash) else {
            return;
        };
        if let Some(before) = known.take() {
            metrics
                .key_sets
                .remove(&metrics.key_set(&self.issuer, &before));
        }
        let labels = metrics.key_set(&self.issuer, &keys);
        metrics.key_sets.get_or_create(&labels).set(1);
        *known = Some(keys);
    }
}
