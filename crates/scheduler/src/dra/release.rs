//! Reservations to release for a pod that cannot be attempted, for example because one of its claims is missing.

use std::sync::Arc;

use allot_framework::claim_plugin::ClaimPlugin;
use allot_resourceclaim::{consumers, is_for_pod, is_reserved_for};
use k8s_openapi::api::resource::v1::ResourceClaim;

use super::ClaimCleanup;
use super::claims::{Claims, allocation_of, uid_of};
use crate::pod::PodInfo;
use crate::pod::claims::claim_key;

/// One claim to release that an earlier attempt allocated or reserved for the pod: deallocate it if no other pod uses
/// it, otherwise remove the pod's reservation. Upstream keeps both until the pod is gone. Claims that were allocated
/// by others and not reserved stay, as do claims of PodGroups and claims that are being deleted.
pub fn claims_to_release(
    pod: &PodInfo,
    claims: &Claims,
    plugin: Option<&dyn ClaimPlugin>,
) -> Option<ClaimCleanup> {
    let entries = pod.spec().resource_claims.iter().flatten();
    let newer = entries.filter(|entry| !plugin.is_some_and(|p| p.owns(pod, entry)));
    let known = newer.filter_map(|entry| claims.get(&claim_key(pod, entry).ok()??));
    let known: Vec<&Arc<ResourceClaim>> = known.collect();
    // The pod may be waiting only for that release.
    if known
        .iter()
        .any(|claim| claims.is_releasing(uid_of(claim), &pod.uid))
    {
        return None;
    }
    known.into_iter().find_map(|claim| {
        let uid = uid_of(claim);
        let stays = claim.metadata.deletion_timestamp.is_some() || claims.was_tried(claim);
        if stays || allocation_of(claim).is_none() {
            return None;
        }
        match consumers(claim) {
            [] if claims.is_orphaned(uid) || is_for_pod(&pod.pod, claim) => {
                Some(ClaimCleanup::Deallocate(claim.clone()))
            }
            [one] if *one.uid == *pod.uid => Some(ClaimCleanup::Deallocate(claim.clone())),
            _ if is_reserved_for(claim, &pod.uid) => Some(ClaimCleanup::Unreserve(claim.clone())),
            _ => None,
        }
    })
}
