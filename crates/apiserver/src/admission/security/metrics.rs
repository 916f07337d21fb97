//! The numbers of evaluations, under upstream's names.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::admission::{Attributes, Operation};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Evaluation {
    decision: &'static str,
    policy_level: &'static str,
    policy_version: String,
    mode: &'static str,
    request_operation: &'static str,
    resource: &'static str,
    subresource: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Exemption {
    request_operation: &'static str,
    resource: &'static str,
    subresource: &'static str,
}

/// The counters of pod security.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    evaluations: Family<Evaluation, Counter>,
}

impl Metrics {
    /// Adds the counters to a registry.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Metrics::default();
        registry.register(
            "pod_security_evaluations",
            "Pods compared with a level of pod security",
            metrics.evaluations.clone(),
        );
        // There is no configuration that exempts anything, so these stay at zero.
        let exemptions = Family::<Exemption, Counter>::default();
        for (request_operation, resource) in [
            ("create", "pod"),
            ("update", "pod"),
            ("create", "controller"),
            ("update", "controller"),
        ] {
            drop(exemptions.get_or_create(&Exemption {
                request_operation,
                resource,
                subresource: "",
            }));
        }
        registry.register(
            "pod_security_exemptions",
            "Requests that pod security leaves out",
            exemptions,
        );
        metrics
    }

    /// Counts that the pod of a request was compared with a level.
    pub(super) fn evaluated(
        &self,
        attributes: &Attributes<'_>,
        mode: &'static str,
        level: &'static str,
        version: String,
        allowed: bool,
    ) {
        let evaluation = Evaluation {
            decision: if allowed { "allow" } else { "deny" },
            policy_level: level,
            policy_version: version,
            mode,
            request_operation: match attributes.operation {
                Operation::Create => "create",
                _ => "update",
            },
            resource: match attributes.resource.is("", "pods") {
                true => "pod",
                false => "controller",
            },
            subresource: attributes.subresource.to_owned(),
        };
        self.evaluations.get_or_create(&evaluation).inc();
    }
}
