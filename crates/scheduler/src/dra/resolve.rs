//! From the claims in a pod's specification to claim objects.

use allot_framework::claim_plugin::ClaimPlugin;
use allot_resourceclaim::is_for_pod;
use k8s_openapi::api::resource::v1::ResourceClaim;

use super::claims::{Claims, uid_of};
use crate::pod::claims::{ResolveError, claim_key};
use crate::pod::{Key, PodInfo};
use crate::podgroups::claims::{Consumer, PodGroup};

/// A claim of a pod together with its object.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// Namespace and name of the object.
    pub key: Key,
    /// The claim in its newest known version.
    pub claim: std::sync::Arc<ResourceClaim>,
    /// The consumer that it is reserved for.
    pub consumer: Consumer,
}

/// The PodGroup of a pod, if groups have claims.
fn group_of<'a>(pod: &PodInfo, claims: &'a Claims) -> Result<Option<&'a PodGroup>, ResolveError> {
    let (Some(groups), Some(name)) = (claims.groups(), pod.group()) else {
        return Ok(None);
    };
    let key = Key::new(&pod.key.namespace, name);
    let group = groups.get(&key);
    group
        .map(|group| Some(&**group))
        .ok_or_else(|| ResolveError::NoGroup(name.to_owned()))
}

/// All claims of a pod but those of another generation, each object once; the first problem ends it.
pub fn all(
    pod: &PodInfo,
    plugin: Option<&dyn ClaimPlugin>,
    claims: &Claims,
) -> Result<Vec<Resolved>, ResolveError> {
    let mut out: Vec<Resolved> = Vec::new();
    let group = group_of(pod, claims)?;
    for entry in pod.spec().resource_claims.iter().flatten() {
        if plugin.is_some_and(|p| p.owns(pod, entry)) {
            continue;
        }
        let Some(key) = claim_key(pod, entry)? else {
            continue;
        };
        let claim = claims
            .get(&key)
            .ok_or_else(|| ResolveError::NotFound(key.name.to_string()))?;
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(ResolveError::Deleting(key.name.to_string()));
        }
        if entry.resource_claim_name.is_none()
            && !is_for_pod(&pod.pod, claim)
            && !group.is_some_and(|g| g.owns(claim))
        {
            let (claim, owner) = (key.to_string(), pod.key.to_string());
            return Err(match group {
                None => ResolveError::NotOwner(claim, owner),
                Some(group) => ResolveError::NeitherOwner(claim, owner, group.key.name.to_string()),
            });
        }
        if !out.iter().any(|r| uid_of(&r.claim) == uid_of(claim)) {
            out.push(Resolved {
                key,
                claim: claim.clone(),
                consumer: Consumer::of(pod, group, entry),
            });
        }
    }
    Ok(out)
}
