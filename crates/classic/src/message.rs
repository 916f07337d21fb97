//! What the plugin observes and what it has written.

use std::sync::Arc;

use allot_framework::claim_plugin::Message;
use allot_framework::pod::{Key, PodInfo, Uid};
use allot_model::classic::objects::{
    Allocation, ClaimParameters, ClassParameters, PodScheduling, ResourceClaim, ResourceClass,
    ResourceSlice, SchedulingSpec,
};
use allot_reflector::{Observed, api_message};

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
    /// Delete a negotiation whose pod is not among the pods that the scheduler knows, if the pod has finished.
    Collect {
        /// Namespace and name of the pod.
        pod: Key,
        /// UID of the pod.
        uid: Uid,
    },
    /// Take the reservation for a pod back after its binding failed.
    Unreserve {
        /// The pod.
        pod: Uid,
        /// The claim.
        claim: Arc<ResourceClaim>,
    },
}

impl Message for Input {
    fn list_of(&self) -> Option<&'static str> {
        fn listed<K>(observed: &Observed<K>, kind: &'static str) -> Option<&'static str> {
            matches!(observed, Observed::Listed { .. }).then_some(kind)
        }
        match self {
            Self::Claim(o) => listed(o, "ResourceClaim"),
            Self::Class(o) => listed(o, "ResourceClass"),
            Self::Scheduling(o) => listed(o, "PodSchedulingContext"),
            Self::Slice(o) => listed(o, "ResourceSlice"),
            Self::ClaimParameters(o) => listed(o, "ResourceClaimParameters"),
            Self::ClassParameters(o) => listed(o, "ResourceClassParameters"),
            Self::ClaimWritten { .. } | Self::Released { .. } | Self::Published { .. } => None,
        }
    }
}

impl Message for Action {}

/// The claims to write for a pod.
#[derive(Debug, Clone)]
pub struct ClaimTasks(pub Vec<ClaimTask>);

impl Message for ClaimTasks {}
