//! Which claim objects the entries of a pod's `spec.resourceClaims` refer to.

use allot_resourceclaim::UnknownName;
use k8s_openapi::api::core::v1::PodResourceClaim;

use super::{Key, PodInfo};

/// Why a claim of a pod has no usable object; the texts are upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// The controller has not created the claim from its template yet.
    #[error("pod {0:?}: ResourceClaim not created yet")]
    NotCreated(String),
    /// The entry has no source of claims that this release knows.
    #[error("pod {0:?}, spec.resourceClaim {1:?}: none of the supported fields are set")]
    Unsupported(String, String),
    /// There is no such claim.
    #[error("resourceclaim.resource.k8s.io {0:?} not found")]
    NotFound(String),
    /// The claim is being deleted.
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
    /// The pod's PodGroup does not exist (yet).
    #[error("podgroup.scheduling.k8s.io {0:?} not found")]
    NoGroup(String),
}

/// The name of the object behind a claim of a pod; `None` when the controller decided that none is needed.
pub fn claim_key(pod: &PodInfo, claim: &PodResourceClaim) -> Result<Option<Key>, ResolveError> {
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
