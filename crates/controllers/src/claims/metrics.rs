//! Metrics of the claim controller.

use k8s_openapi::api::resource::v1::ResourceClaim;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::controller::informer::Change;
use crate::controller::meta;
use crate::controller::metrics::Metrics;
use allot_resourceclaim::{EXTENDED_RESOURCE_CLAIM_ANNOTATION, POD_CLAIM_NAME_ANNOTATION};

type CreateLabels = [(&'static str, &'static str); 2];
type ClaimLabels = [(&'static str, &'static str); 3];

#[derive(Clone, Default)]
pub(super) struct ClaimMetrics {
    creates: Family<CreateLabels, Counter>,
    claims: Family<ClaimLabels, Gauge>,
}

fn flag(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

fn labels(claim: &ResourceClaim) -> ClaimLabels {
    let allocated = claim
        .status
        .as_ref()
        .is_some_and(|s| s.allocation.is_some());
    let requests = claim
        .spec
        .devices
        .iter()
        .flat_map(|d| d.requests.iter().flatten());
    let admin = requests
        .filter_map(|r| r.exactly.as_ref())
        .any(|e| e.admin_access == Some(true));
    let source = if meta::annotation(claim, POD_CLAIM_NAME_ANNOTATION).is_some() {
        "resource_claim_template"
    } else if meta::annotation(claim, EXTENDED_RESOURCE_CLAIM_ANNOTATION) == Some("true") {
        "extended_resource"
    } else {
        ""
    };
    [
        ("allocated", flag(allocated)),
        ("admin_access", flag(admin)),
        ("source", source),
    ]
}

impl ClaimMetrics {
    pub(super) fn register(metrics: &Metrics) -> Self {
        let this = Self::default();
        metrics.register(
            "resourceclaim_controller_creates",
            "ResourceClaims that were to be created, by outcome",
            this.creates.clone(),
        );
        metrics.register(
            "resourceclaim_controller_resource_claims",
            "ResourceClaims that exist",
            this.claims.clone(),
        );
        this
    }

    pub(super) fn created(&self, ok: bool, admin_access: bool) {
        let status = if ok { "success" } else { "failure" };
        let labels = [("status", status), ("admin_access", flag(admin_access))];
        self.creates.get_or_create(&labels).inc();
    }

    pub(super) fn count(&self, change: &Change<ResourceClaim>) {
        match change {
            Change::Added(new) => {
                self.claims.get_or_create(&labels(new)).inc();
            }
            Change::Updated(old, new) => {
                let (old, new) = (labels(old), labels(new));
                if old != new {
                    self.claims.get_or_create(&old).dec();
                    self.claims.get_or_create(&new).inc();
                }
            }
            Change::Deleted(old) => {
                self.claims.get_or_create(&labels(old)).dec();
            }
        }
    }
}
