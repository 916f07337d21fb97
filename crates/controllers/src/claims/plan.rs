//! The decisions of the claim controller, without input and output.

use std::sync::Arc;

use allot_resourceclaim::{
    FINALIZER, POD_CLAIM_NAME_ANNOTATION, claim_status, consumers, is_for_pod,
};
use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};
use serde_json::{Map, Value, json};

use super::groups;
use crate::controller::api::Part;
use crate::controller::meta;

#[cfg(test)]
mod tests;

/// Longest base of a generated name: leaves a hyphen and five random characters within 63.
const MAX_BASE: usize = 57;

/// The entries of `spec.resourceClaims`.
pub(super) fn pod_claims(pod: &Pod) -> impl Iterator<Item = &PodResourceClaim> {
    pod.spec
        .iter()
        .flat_map(|s| s.resource_claims.iter().flatten())
}

/// The claim that an entry refers to; `None` while it is unknown.
pub(super) fn claim_name<'a>(pod: &'a Pod, pod_claim: &'a PodResourceClaim) -> Option<&'a str> {
    allot_resourceclaim::claim_name(pod, pod_claim)
        .ok()
        .flatten()
}

/// Whether an entry with a template needs no claim: the status lists it without a name.
pub(super) fn needs_none(pod: &Pod, pod_claim: &PodResourceClaim) -> bool {
    pod_claim.resource_claim_name.is_none()
        && claim_status(pod, pod_claim).is_some_and(|s| s.resource_claim_name.is_none())
}

/// Whether the pod will not use its claims (any longer).
pub(super) fn is_done(pod: &Pod) -> bool {
    meta::is_finished(pod) || (meta::deleting(pod) && meta::node_name(pod).is_empty())
}

fn is_allocated(claim: &ResourceClaim) -> bool {
    claim
        .status
        .as_ref()
        .is_some_and(|s| s.allocation.is_some())
}

/// Whether the claim must be reserved for that (bound) pod.
pub(super) fn wants_reservation(claim: &ResourceClaim, pod: &Pod) -> bool {
    is_allocated(claim) && !groups::is_reserved_for(claim, pod)
}

/// The reservation of a pod.
pub(super) fn pod_reference(pod: &Pod) -> ResourceClaimConsumerReference {
    ResourceClaimConsumerReference {
        api_group: None,
        resource: "pods".to_owned(),
        name: meta::name(pod).to_owned(),
        uid: meta::uid(pod).to_owned(),
    }
}

/// Whether an entry of a pod that still needs its claims requires work.
pub(super) fn entry_needs_work(
    pod: &Pod,
    pod_claim: &PodResourceClaim,
    claim: impl Fn(&str) -> Option<Arc<ResourceClaim>>,
) -> bool {
    if needs_none(pod, pod_claim) {
        return false;
    }
    let bound = !meta::node_name(pod).is_empty();
    let generated = pod_claim.resource_claim_template_name.is_some();
    let Some(found) = claim_name(pod, pod_claim).and_then(claim) else {
        return generated;
    };
    let of_group = groups::is_for_group_of(&found, pod);
    (generated && !is_for_pod(pod, &found) && !of_group)
        || (bound && wants_reservation(&found, pod))
}

/// The claim among a pod's own that was generated for that entry.
pub(super) fn generated_claim<'a>(
    owned: &'a [Arc<ResourceClaim>],
    namespace: &str,
    pod_claim: &str,
) -> Option<&'a Arc<ResourceClaim>> {
    let here = |claim: &&Arc<ResourceClaim>| meta::namespace(&***claim) == namespace;
    owned
        .iter()
        .find(|claim| here(claim) && is_generated(&***claim, pod_claim))
}

/// Whether a claim of an owner was generated for that entry, and is not being deleted.
pub(super) fn is_generated<K: kube::Resource>(claim: &K, entry: &str) -> bool {
    meta::annotation(claim, POD_CLAIM_NAME_ANNOTATION) == Some(entry) && !meta::deleting(claim)
}

/// The prefix of the generated name of a claim.
pub(super) fn generate_name(owner: &str, pod_claim: &str) -> String {
    let full = format!("{owner}-{pod_claim}-");
    if full.len() <= MAX_BASE {
        return full;
    }
    // Both parts are shortened in proportion; names are ASCII.
    let cut = |text: &str| text[..text.len() * MAX_BASE / full.len()].to_owned();
    format!("{}-{}", cut(owner), cut(pod_claim))
}

/// The owner of a generated claim.
#[derive(Clone, Copy)]
pub(super) struct Owner<'a> {
    pub(super) api_version: &'a str,
    pub(super) kind: &'a str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
}

impl<'a> Owner<'a> {
    pub(super) fn pod(pod: &'a Pod) -> Self {
        Self {
            api_version: "v1",
            kind: "Pod",
            namespace: meta::namespace(pod),
            name: meta::name(pod),
            uid: meta::uid(pod),
        }
    }
}

/// The claim to create for an entry of its owner, from the `spec` of the template.
pub(super) fn new_claim(owner: &Owner<'_>, entry: &str, template: &Value) -> Value {
    let mut annotations = match &template["metadata"]["annotations"] {
        Value::Object(map) => map.clone(),
        _ => Map::new(),
    };
    annotations.insert(POD_CLAIM_NAME_ANNOTATION.to_owned(), json!(entry));
    let mut metadata = json!({
        "generateName": generate_name(owner.name, entry),
        "namespace": owner.namespace,
        "annotations": annotations,
        "ownerReferences": [{
            "apiVersion": owner.api_version,
            "kind": owner.kind,
            "name": owner.name,
            "uid": owner.uid,
            "controller": true,
        }],
    });
    if let Value::Object(labels) = &template["metadata"]["labels"] {
        metadata["labels"] = json!(labels);
    }
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": template["spec"],
    })
}

/// Whether a claim (as JSON) requests admin access.
pub(super) fn asks_for_admin_access(claim: &Value) -> bool {
    claim["spec"]["devices"]["requests"]
        .as_array()
        .is_some_and(|requests| requests.iter().any(|r| r["exactly"]["adminAccess"] == true))
}

/// The whole of `status.resourceClaimStatuses` with the new names in it, in the order of the spec.
pub(super) fn claim_statuses(pod: &Pod, new: &[(String, String)]) -> Vec<Value> {
    pod_claims(pod)
        .filter_map(|pod_claim| {
            let found = new.iter().find(|(n, _)| *n == pod_claim.name);
            let name = match found {
                Some((_, name)) => name.as_str(),
                None if needs_none(pod, pod_claim) => return Some(json!({"name": pod_claim.name})),
                None if pod_claim.resource_claim_template_name.is_some() => {
                    claim_name(pod, pod_claim)?
                }
                None => return None,
            };
            Some(json!({"name": pod_claim.name, "resourceClaimName": name}))
        })
        .collect()
}

/// Whether a reservation is one of a pod.
pub(super) fn is_pod(consumer: &ResourceClaimConsumerReference) -> bool {
    consumer.resource == "pods" && consumer.api_group.as_deref().unwrap_or_default().is_empty()
}

/// The state of a consumer according to the cache.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Consumer {
    Needs,
    Gone,
    /// The claim is not in the cache, which may lag: it has to be read from the API server.
    AskServer,
}

/// The state of a pod in a reservation; `deleted` says whether its deletion was observed.
pub(super) fn consumer(
    consumer: &ResourceClaimConsumerReference,
    cached: Option<&Pod>,
    deleted: bool,
) -> Consumer {
    match cached {
        _ if deleted => Consumer::Gone,
        None => Consumer::AskServer,
        // The cache may still have the pod's predecessor.
        Some(pod) if meta::uid(pod) != consumer.uid => Consumer::AskServer,
        Some(pod) if is_done(pod) => Consumer::Gone,
        Some(_) => Consumer::Needs,
    }
}

/// A write to a claim.
#[derive(Debug, PartialEq)]
pub(super) enum ClaimStep {
    /// Merged into the status.
    Status(Value),
    /// The remaining consumers.
    ReservedFor(Vec<ResourceClaimConsumerReference>),
    /// The finalizers that remain.
    RemoveFinalizer(Vec<String>),
}

impl ClaimStep {
    /// The target of the patch, and its body.
    pub(super) fn body(&self) -> (Part, Value) {
        match self {
            Self::Status(status) => (Part::Status, json!({"status": status})),
            Self::ReservedFor(users) => (Part::Status, json!({"status": {"reservedFor": users}})),
            Self::RemoveFinalizer(rest) => (Part::Main, json!({"metadata": {"finalizers": rest}})),
        }
    }
}

/// The writes that release a claim, given the remaining consumers. Each is based on the result of the one before. A
/// claim without the finalizer is never deallocated: another component manages it.
pub(super) fn release(
    claim: &ResourceClaim,
    needed: &[ResourceClaimConsumerReference],
) -> Vec<ClaimStep> {
    let finalizers = claim.metadata.finalizers.as_deref().unwrap_or_default();
    let protected = finalizers.iter().any(|f| f == FINALIZER);
    let mut steps = Vec::new();
    let mut deallocated = !is_allocated(claim);
    let shrank = needed.len() < consumers(claim).len();
    if shrank {
        if needed.is_empty() && protected && !deallocated {
            let nothing = json!({"reservedFor": null, "allocation": null});
            steps.push(ClaimStep::Status(nothing));
            deallocated = true;
        } else {
            steps.push(ClaimStep::ReservedFor(needed.to_vec()));
        }
    } else if protected && meta::deleting(claim) && needed.is_empty() {
        if !deallocated {
            steps.push(ClaimStep::Status(json!({"allocation": null})));
            deallocated = true;
        }
    } else {
        return steps;
    }
    if protected && deallocated {
        let rest = finalizers
            .iter()
            .filter(|f| *f != FINALIZER)
            .cloned()
            .collect();
        steps.push(ClaimStep::RemoveFinalizer(rest));
    }
    steps
}
