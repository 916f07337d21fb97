//! The numbers of evaluations, under upstream's names.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::admission::{Attributes, Operation};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Evaluation {
    decision: &'static str,
    mode: &'static str,
    policy_level: &'static str,
    policy_version: String,
    request_operation: &'static str,
    resource: &'static str,
    subresource: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Exemption {
    request_operation: &'static str,
    resource: &'static str,
    subresource: String,
}

/// The counters of pod security.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    evaluations: Family<Evaluation, Counter>,
    exemptions: Family<Exemption, Counter>,
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
        // These are there before anything is left out.
        for (request_operation, resource) in [
            ("create", "pod"),
            ("update", "pod"),
            ("create", "controller"),
            ("update", "controller"),
        ] {
            drop(metrics.exemptions.get_or_create(&Exemption {
                request_operation,
                resource,
                subresource: String::new(),
            }));
        }
        registry.register(
            "pod_security_exemptions",
            "Requests that pod security leaves out",
            metrics.exemptions.clone(),
        );
        metrics
    }

    /// Counts that the pod of a request was left out.
    pub(super) fn exempted(&self, attributes: &Attributes<'_>) {
        let exemption = Exemption {
            request_operation: operation(attributes),
            resource: kind(attributes),
            subresource: attributes.subresource.to_owned(),
        };
        self.exemptions.get_or_create(&exemption).inc();
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
            request_operation: operation(attributes),
            resource: kind(attributes),
            subresource: attributes.subresource.to_owned(),
        };
        self.evaluations.get_or_create(&evaluation).inc();
    }
}

fn operation(attributes: &Attributes<'_>) -> &'static str {
    match attributes.operation {
        Operation::Create => "create",
        _ => "update",
    }
}

fn kind(attributes: &Attributes<'_>) -> &'static str {
    match attributes.resource.is("", "pods") {
        true => "pod",
        false => "controller",
    }
}
