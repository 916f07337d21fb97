//! From the claims in a pod's specification to claim objects.

use allot_resourceclaim::{UnknownName, is_for_pod};
use k8s_openapi::api::core::v1::PodResourceClaim;
use k8s_openapi::api::resource::v1::ResourceClaim;

use super::claims::{Claims, uid_of};
use super::podgroup::{Consumer, PodGroup};
use crate::classic::Classic;
use crate::pod::{Key, PodInfo};

/// Why a claim of a pod has no usable object; the texts are upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The controller has not created the claim from its template yet.
    #[error("pod {0:?}: ResourceClaim not created yet")]
    NotCreated(String),
    /// The entry has none of the sources of claims that are known in this release.
    #[error("pod {0:?}, spec.resourceClaim {1:?}: none of the supported fields are set")]
    Unsupported(String, String),
    /// There is no such claim.
    #[error("resourceclaim.resource.k8s.io {0:?} not found")]
    NotFound(String),
    /// The claim goes away.
    #[error("resourceclaim {0:?} is being deleted")]
    Deleting(String),
    /// The claim under the expected name was generated for another pod.
    #[error("ResourceClaim {0} was not created for Pod {1} (Pod is not owner)")]
    NotOwner(String, String),
    /// As before, for a pod in a group.
    #[error(
        "ResourceClaim {0} was not created for Pod {1} (neither Pod nor PodGroup {2} is the owner)"
    )]
    NeitherOwner(String, String, String),
    /// The pod's group is not there (yet).
    #[error("podgroup.scheduling.k8s.io {0:?} not found")]
    NoGroup(String),
}

/// The name of the object behind a claim of a pod; `None` when the controller decided that none is needed.
pub fn name(pod: &PodInfo, claim: &PodResourceClaim) -> Result<Option<Key>, ResolveError> {
    let pod_key = || pod.key.to_string();
    match allot_resourceclaim::claim_name(&pod.pod, claim) {
        Ok(name) => Ok(name.map(|name| Key {
            namespace: pod.key.namespace.clone(),
            name: name.into(),
        })),
        Err(UnknownName::NotCreated) => Err(ResolveError::NotCreated(pod_key())),
        Err(UnknownName::Unsupported) => {
            Err(ResolveError::Unsupported(pod_key(), claim.name.clone()))
        }
    }
}

/// A claim of a pod together with its object.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// Namespace and name of the object.
    pub key: Key,
    /// The object.
    pub claim: std::sync::Arc<ResourceClaim>,
    /// The consumer that it is reserved for.
    pub consumer: Consumer,
}

/// The group of a pod, where groups have claims.
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

/// All claims of a pod but the classic ones, each object once; the first problem ends it.
pub fn all(
    pod: &PodInfo,
    classic: Option<&Classic>,
    claims: &Claims,
) -> Result<Vec<Resolved>, ResolveError> {
    let mut out: Vec<Resolved> = Vec::new();
    let group = group_of(pod, claims)?;
    for entry in pod.spec().resource_claims.iter().flatten() {
        if classic.is_some_and(|c| c.owns(pod, entry)) {
            continue;
        }
        let Some(key) = name(pod, entry)? else {
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
