//! `/metrics/slis`: the outcomes of health checks.

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::error::{ApiError, Result};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Check {
    name: &'static str,
    r#type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    name: &'static str,
    status: &'static str,
    r#type: &'static str,
}

/// The last outcome of each check, and how often it was what.
pub struct Slis {
    registry: Registry,
    last: Family<Check, Gauge>,
    all: Family<Outcome, Counter>,
}

impl Default for Slis {
    fn default() -> Self {
        let mut registry = Registry::default();
        let (last, all) = (Family::default(), Family::default());
        registry.register(
            "kubernetes_healthcheck",
            "[STABLE] This metric records the result of a single healthcheck",
            Family::clone(&last),
        );
        // The library adds `_total`.
        registry.register(
            "kubernetes_healthchecks",
            "[STABLE] This metric records the results of all healthcheck",
            Family::clone(&all),
        );
        Slis {
            registry,
            last,
            all,
        }
    }
}

impl Slis {
    /// A check of an endpoint was made.
    pub fn checked(&self, endpoint: &'static str, name: &'static str, ok: bool) {
        let check = Check {
            name,
            r#type: endpoint,
        };
        self.last.get_or_create(&check).set(ok.into());
        let outcome = Outcome {
            name,
            status: if ok { "success" } else { "error" },
            r#type: endpoint,
        };
        self.all.get_or_create(&outcome).inc();
    }

    /// The numbers in the text format.
    ///
    /// # Errors
    /// 500 if they cannot be written, which does not happen.
    pub fn text(&self) -> Result<String> {
        let mut out = String::new();
        text::encode(&mut out, &self.registry)
            .map_err(|error| ApiError::unknown(error.to_string()))?;
        Ok(out)
    }
}
