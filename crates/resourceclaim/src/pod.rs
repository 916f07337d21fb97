//! Which claims a pod uses, by the rules of the Go package `k8s.io/dynamic-resource-allocation/resourceclaim`.

use k8s_openapi::api::core::v1::{Pod, PodResourceClaim, PodResourceClaimStatus};
use k8s_openapi::api::resource::v1::ResourceClaim;

/// Why the name of a claim is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownName {
    /// The claim is not created from its template yet.
    NotCreated,
    /// The entry has none of the sources of claims that exist in 1.36.
    Unsupported,
}

/// The last minor release in which the claim controller names a claim that it makes from a template after pod and entry
/// alone. Later names have a random suffix, and are in the status of the pod.
pub const LAST_RELEASE_WITH_DETERMINISTIC_NAMES: u32 = 27;

/// The name of the claim for an entry of `spec.resourceClaims`, as `resourceclaim.Name` in upstream. `None` when the
/// claim controller decided that no claim is needed.
///
/// # Errors
/// When there is no name (yet).
pub fn claim_name<'a>(
    pod: &'a Pod,
    entry: &'a PodResourceClaim,
) -> Result<Option<&'a str>, UnknownName> {
    if let Some(name) = &entry.resource_claim_name {
        return Ok(Some(name));
    }
    if entry.resource_claim_template_name.is_none() {
        return Err(UnknownName::Unsupported);
    }
    let status = claim_status(pod, entry).ok_or(UnknownName::NotCreated)?;
    Ok(status.resource_claim_name.as_deref())
}

/// The pod's status of an entry of `spec.resourceClaims`.
pub fn claim_status<'a>(
    pod: &'a Pod,
    entry: &PodResourceClaim,
) -> Option<&'a PodResourceClaimStatus> {
    let statuses = pod.status.as_ref()?.resource_claim_statuses.as_deref()?;
    statuses.iter().find(|status| status.name == entry.name)
}

/// The name of the claim that the scheduler created for the pod's extended resources.
pub fn extended_resource_claim_name(pod: &Pod) -> Option<&str> {
    let status = pod.status.as_ref()?;
    let status = status.extended_resource_claim_status.as_ref()?;
    Some(status.resource_claim_name.as_str()).filter(|name| !name.is_empty())
}

/// Whether a claim was created for the pod: the pod is its controller. As `resourceclaim.IsForPod` in upstream.
pub fn is_for_pod(pod: &Pod, claim: &ResourceClaim) -> bool {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let mut owners = claim.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.controller == Some(true) && owner.uid == uid)
}

#[cfg(test)]
mod tests;
