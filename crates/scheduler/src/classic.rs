//! Claims as they were before 1.31: allocated by drivers that the scheduler negotiates with, or by the scheduler of
//! 1.30 from structured parameters.
//!
//! The negotiation uses one object per pod (PodScheduling of 1.26, PodSchedulingContext since): the scheduler writes
//! the feasible nodes, the drivers exclude some, the scheduler selects one, the drivers allocate. Until then the pod
//! stays pending and blocks no other pod. Every function here is pure and called by [`crate::core`]; if a server serves
//! none of the kinds, this state does not exist and costs nothing.
//!
//! Invariants: an exclusive claim is assumed for one pod at a time, also while the reservation is being written
//! ([`claims`]); an instance of structured resources is allocated to one claim ([`structured`]); a published
//! specification counts until a watch or an answer contradicts it ([`negotiations`]); a claim is not deallocated before
//! pods that can use it where it is allocated were tried ([`deferrals`]).

pub mod claims;
pub mod deferrals;
pub mod discovery;
pub mod negotiations;
pub mod pod;
mod releases;
pub mod structured;

use std::sync::Arc;

use allot_model::classic::objects::{
    Allocation, ClaimParameters, ClassParameters, PodScheduling, ResourceClaim, ResourceClass,
    ResourceSlice, SchedulingSpec,
};
use k8s_openapi::api::core::v1::{Pod, PodResourceClaimStatus};
use rustc_hash::FxHashMap;

use crate::pod::claims::{ResolveError, claim_key};
pub(crate) use crate::pod::key_of;
use crate::pod::{Key, PodInfo, Uid};
use allot_reflector::{Observed, api_message};

pub use discovery::Served;
pub use pod::PodClaims;

/// An observation of the classic kinds, or the outcome of a write.
#[derive(Debug)]
pub enum Input {
    /// Claims.
    Claim(Observed<ResourceClaim>),
    /// Classes.
    Class(Observed<ResourceClass>),
    /// Negotiations.
    Scheduling(Observed<PodScheduling>),
    /// Structured resources of nodes.
    Slice(Observed<ResourceSlice>),
    /// Structured parameters of claims.
    ClaimParameters(Observed<ClaimParameters>),
    /// Structured parameters of classes.
    ClassParameters(Observed<ClassParameters>),
    /// A claim was written for a pod that is being bound.
    ClaimWritten {
        /// The pod that the write is for.
        pod: Uid,
        /// The claim as the server answered.
        claim: Arc<ResourceClaim>,
    },
    /// A write that deallocates or unreserves a claim has ended.
    Released {
        /// Namespace and name of the claim.
        key: Key,
        /// UID of the claim.
        uid: Uid,
        /// The pod of the reservation; `None` for a deallocation.
        pod: Option<Uid>,
        /// The claim as the server answered, if it was written.
        claim: Option<Arc<ResourceClaim>>,
    },
    /// A negotiation was written, or could not be.
    Published {
        /// The pod of the negotiation.
        pod: Arc<PodInfo>,
        /// The stored object.
        outcome: Result<Arc<PodScheduling>, PublishError>,
    },
}

/// Why a negotiation could not be published.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The API server refused the write.
    #[error("{}", api_message(.0))]
    Request(#[from] kube::Error),
    /// An object of that name belongs to another pod.
    #[error("{kind} object with UID {uid} is not owned by Pod {pod}")]
    NotOwned {
        /// The kind of the object, in the words of the served version.
        kind: String,
        /// UID of the object.
        uid: String,
        /// Namespace and name of the pod.
        pod: Key,
    },
}

/// A claim to write before its pod can be bound.
#[derive(Debug, Clone)]
pub struct ClaimTask {
    /// Namespace and name.
    pub key: Key,
    /// UID: a claim of the same name that was created later is another claim.
    pub uid: Uid,
    /// The newest known version; the first write is based on it.
    pub claim: Arc<ResourceClaim>,
    /// What the scheduler allocated (structured parameters), and for which driver.
    pub allocation: Option<(String, Arc<Allocation>)>,
}

impl ClaimTask {
    /// The change of the claim, if it no longer matches the claim that the pod was placed with.
    pub fn is_lost(&self, now: &ResourceClaim) -> Option<&'static str> {
        if now.metadata.deletion_timestamp.is_some()
            || now.metadata.uid.as_deref() != Some(&*self.uid)
        {
            return Some("deleted");
        }
        let ours = self.allocation.as_ref().map(|(_, ours)| &**ours);
        // Without an allocation by the scheduler, the pod was placed where the driver's allocation can be used.
        let decided = ours.or(self.claim.status.allocation.as_ref());
        match (&now.status.allocation, decided) {
            (Some(there), Some(decided)) if there == decided => None,
            (Some(_), _) => Some("allocated"),
            (None, _) if ours.is_some() => None,
            (None, _) => Some("deallocated"),
        }
    }
}

/// A write for the classic API.
#[derive(Debug, Clone)]
pub enum Action {
    /// Publish the scheduler's choice to the drivers.
    Publish {
        /// The pod of the negotiation.
        pod: Arc<PodInfo>,
        /// The specification to write.
        spec: SchedulingSpec,
        /// UID of the negotiation object, if it is known to exist.
        known: Option<String>,
    },
    /// Have a claim deallocated that keeps a pod from its node.
    Deallocate {
        /// The pod.
        pod: Arc<PodInfo>,
        /// The claim.
        claim: Arc<ResourceClaim>,
        /// What to publish first, so that no driver allocates for a node that was abandoned.
        publish: Option<SchedulingSpec>,
        /// UID of the negotiation object, if it is known to exist.
        known: Option<String>,
    },
    /// Delete the negotiation of a pod that was bound.
    Forget(Arc<PodInfo>),
    /// Take the reservation for a pod back after its binding failed.
    Unreserve {
        /// The pod.
        pod: Uid,
        /// The claim.
        claim: Arc<ResourceClaim>,
    },
}

/// The scheduler's state of the classic kinds.
#[derive(Debug)]
pub struct Classic {
    /// The versions and kinds that the API server serves.
    pub served: Served,
    /// The classic claims, as observed and as assumed.
    pub claims: claims::Claims,
    /// The PodSchedulingContexts by their pods.
    pub negotiations: negotiations::Negotiations,
    /// The deallocations that wait until another pod was tried.
    pub deferrals: deferrals::Deferrals,
    /// Structured resources and parameters.
    pub structured: structured::Structured,
    classes: FxHashMap<String, Arc<ResourceClass>>,
}

impl Classic {
    /// The state before any list.
    pub fn new(served: Served) -> Self {
        Self {
            served,
            claims: claims::Claims::default(),
            negotiations: negotiations::Negotiations::default(),
            deferrals: deferrals::Deferrals::default(),
            structured: structured::Structured::default(),
            classes: FxHashMap::default(),
        }
    }

    /// The observed ResourceClass of this name.
    pub fn class(&self, name: &str) -> Option<&Arc<ResourceClass>> {
        self.classes.get(name)
    }

    /// Adds, changes or removes classes.
    pub fn set_classes(&mut self, observed: Observed<ResourceClass>) {
        let name = |c: &ResourceClass| c.metadata.name.clone().unwrap_or_default();
        match observed {
            Observed::Applied(class) => {
                self.classes.insert(name(&class), Arc::new(*class));
            }
            Observed::Deleted(class) => {
                self.classes.remove(&name(&class));
            }
            Observed::Listed { items, .. } => {
                self.classes = items.into_iter().map(|c| (name(&c), Arc::new(c))).collect();
            }
        }
    }

    /// Whether pods lack what [`Classic::complete`] adds.
    pub fn completes(&self) -> bool {
        self.served.deterministic_names
    }

    /// Adds to a pod what later releases record in its status: the names of its generated claims, which up to 1.27
    /// follow from the pod's name.
    pub fn complete(&self, pod: &mut Pod) {
        if !self.served.deterministic_names {
            return;
        }
        let name = pod.metadata.name.clone().unwrap_or_default();
        let entries = pod
            .spec
            .iter()
            .flat_map(|s| s.resource_claims.iter().flatten());
        let statuses: Vec<_> = entries
            .filter(|e| e.resource_claim_name.is_none())
            .map(|e| PodResourceClaimStatus {
                name: e.name.clone(),
                resource_claim_name: Some(format!("{name}-{}", e.name)),
            })
            .collect();
        if !statuses.is_empty() {
            pod.status.get_or_insert_default().resource_claim_statuses = Some(statuses);
        }
    }

    /// Whether an entry of a pod's claims refers to a classic claim. If both generations are served, a claim that does
    /// not exist yet counts as a current one: the result is the same, the claim is missing.
    pub fn owns(
        &self,
        pod: &PodInfo,
        entry: &k8s_openapi::api::core::v1::PodResourceClaim,
    ) -> bool {
        if self.served.alone {
            return true;
        }
        matches!(claim_key(pod, entry), Ok(Some(key)) if self.claims.get(&key).is_some())
    }

    /// The classic claims of a pod with their names in the pod, each object once; the first problem ends it.
    ///
    /// # Errors
    /// When a claim does not exist, is being deleted, or belongs to another pod.
    pub fn resolve(
        &self,
        pod: &PodInfo,
    ) -> Result<Vec<(String, Key, Arc<ResourceClaim>)>, ResolveError> {
        let mut out: Vec<(String, Key, Arc<ResourceClaim>)> = Vec::new();
        for entry in pod.spec().resource_claims.iter().flatten() {
            if !self.owns(pod, entry) {
                continue;
            }
            let Some(key) = claim_key(pod, entry)? else {
                continue;
            };
            let claim = self
                .claims
                .get(&key)
                .ok_or_else(|| ResolveError::NotFound(key.name.to_string()))?;
            if claim.metadata.deletion_timestamp.is_some() {
                return Err(ResolveError::Deleting(key.name.to_string()));
            }
            if entry.resource_claim_name.is_none() && !is_owner(&pod.uid, claim) {
                return Err(ResolveError::NotOwner(key.to_string(), pod.key.to_string()));
            }
            if !out.iter().any(|(_, k, _)| *k == key) {
                out.push((entry.name.clone(), key, claim.clone()));
            }
        }
        Ok(out)
    }
}

/// Whether the claim was generated for the pod with this identity.
fn is_owner(pod: &str, claim: &ResourceClaim) -> bool {
    let owners = claim.metadata.owner_references.iter().flatten();
    owners
        .into_iter()
        .any(|o| o.controller == Some(true) && o.uid == pod)
}

#[cfg(test)]
mod tests;
