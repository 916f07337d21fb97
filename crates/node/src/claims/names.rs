//! The claims in a pod's specification and status.

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;

/// An entry of `spec.resourceClaims` that leads to a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodClaim {
    /// What the pod calls it.
    pub(crate) name: String,
    /// Name of the object.
    pub(crate) claim: String,
    /// It was created for this pod.
    pub(crate) generated: bool,
    /// The name is not in the pod's status; it follows from the pod's name, as up to 1.27.
    pub(crate) guessed: bool,
}

/// The claims of a pod, without entries that need no claim.
pub(crate) fn pod_claims(pod: &Pod) -> Vec<PodClaim> {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.resource_claim_statuses.as_deref());
    let statuses = statuses.unwrap_or_default();
    let claims = pod
        .spec
        .iter()
        .flat_map(|spec| spec.resource_claims.iter().flatten());
    claims
        .filter_map(|claim| {
            let status = statuses.iter().find(|status| status.name == claim.name);
            let (object, generated, guessed) = match (&claim.resource_claim_name, status) {
                (Some(name), _) => (name.clone(), false, false),
                (None, Some(status)) => (status.resource_claim_name.clone()?, true, false),
                (None, None) => (format!("{}-{}", pod.name_any(), claim.name), true, true),
            };
            Some(PodClaim {
                name: claim.name.clone(),
                claim: object,
                generated,
                guessed,
            })
        })
        .collect()
}

/// The claim for the extended resources of a pod, which no entry of its specification leads to.
pub(crate) fn extended_claim(pod: &Pod) -> Option<PodClaim> {
    let status = pod
        .status
        .as_ref()?
        .extended_resource_claim_status
        .as_ref()?;
    Some(PodClaim {
        name: String::new(),
        claim: status.resource_claim_name.clone(),
        generated: false,
        guessed: false,
    })
}

/// Names of the claims of a pod.
pub(crate) fn claim_names(pod: &Pod) -> Vec<String> {
    let claims = pod_claims(pod).into_iter().chain(extended_claim(pod));
    claims.map(|claim| claim.claim).collect()
}

/// All containers that run by themselves, in the order of a kubelet's messages: init containers last.
pub(crate) fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec.iter().flat_map(|spec| {
        let init = spec.init_containers.iter().flatten();
        spec.containers.iter().chain(init)
    })
}

fn references_of(container: &Container) -> impl Iterator<Item = (String, String)> + '_ {
    let claims = container
        .resources
        .iter()
        .flat_map(|resources| resources.claims.iter().flatten());
    claims.map(|claim| {
        (
            claim.name.clone(),
            claim.request.clone().unwrap_or_default(),
        )
    })
}

/// Pod claim and request of every entry in the container's `resources.claims`.
pub(crate) fn references(pod: &Pod, container: &str) -> Vec<(String, String)> {
    let found = containers(pod).find(|other| other.name == container);
    found.into_iter().flat_map(references_of).collect()
}

/// Some container uses the pod's claim of this name.
pub(crate) fn is_used(pod: &Pod, name: &str) -> bool {
    containers(pod)
        .flat_map(references_of)
        .any(|(claim, _)| claim == name)
}

/// Requests of the extended resource claim that belong to this container.
pub(crate) fn extended_requests(pod: &Pod, container: &str) -> Option<(String, Vec<String>)> {
    let status = pod
        .status
        .as_ref()?
        .extended_resource_claim_status
        .as_ref()?;
    let mappings = status
        .request_mappings
        .iter()
        .filter(|mapping| mapping.container_name == container);
    let requests: Vec<String> = mappings
        .map(|mapping| mapping.request_name.clone())
        .collect();
    (!requests.is_empty()).then(|| (status.resource_claim_name.clone(), requests))
}
