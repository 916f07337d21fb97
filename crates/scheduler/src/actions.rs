//! What the scheduler decided to do, as values; [`crate::writer`] carries it out.

use std::sync::Arc;

use allot_framework::claim_plugin::Shared;
use k8s_openapi::api::core::v1::ContainerExtendedResourceRequest;
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
use tokio_util::sync::CancellationToken;

use crate::dra::conditions::Pending;
use crate::dra::node_allocatable::NodeAllocatableRequests;
use crate::pod::{Key, PodInfo, Uid};
use crate::podgroups::Condition;
use crate::podgroups::claims::{Consumer, PodGroup};

/// A claim to write before its pod can be bound.
#[derive(Debug, Clone)]
pub struct ClaimTask {
    /// Namespace and name.
    pub key: Key,
    /// UID: a claim of the same name that was created later is another claim.
    pub uid: Uid,
    /// The newest known version; the first write is based on it.
    pub claim: Arc<ResourceClaim>,
    /// The consumer to add to `status.reservedFor`.
    pub consumer: Consumer,
    /// The allocation to write, if the claim is not known to be allocated.
    pub allocation: Option<Arc<AllocationResult>>,
    /// The claim is reserved already, but must get a new `resourceVersion`, see [`Claims::needs_fencing`].
    ///
    /// [`Claims::needs_fencing`]: crate::dra::claims::Claims::needs_fencing
    pub fence: bool,
}

/// The extended resource claim to create before its pod can be bound.
#[derive(Debug, Clone)]
pub struct ExtendedResourceClaimTask {
    /// Identity while it exists only in memory.
    pub uid: Uid,
    /// The claim as it exists in memory.
    pub claim: Arc<ResourceClaim>,
    /// The allocation to write into the new claim.
    pub allocation: Arc<AllocationResult>,
    /// The entries of `extendedResourceClaimStatus.requestMappings` in the pod's status.
    pub mappings: Vec<ContainerExtendedResourceRequest>,
}

/// The writes for a pod's volumes that must precede its binding.
#[derive(Debug, Clone, Default)]
pub struct VolumeTasks {
    /// Volumes to bind to claims.
    pub volumes: Vec<VolumeTask>,
    /// Claims for which a volume is to be provisioned: which, its identity and its version.
    pub claims: Vec<(Key, Uid, String)>,
}

impl VolumeTasks {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.volumes.is_empty() && self.claims.is_empty()
    }
}

/// A volume to bind to a claim.
#[derive(Debug, Clone)]
pub struct VolumeTask {
    /// Name of the volume.
    pub volume: String,
    /// Its version; `None` when it is for the claim already.
    pub version: Option<String>,
    /// The claim, its identity and its version.
    pub claim: (Key, Uid, String),
    /// The volume had no `claimRef` before.
    pub by_controller: bool,
}

/// A pod to bind.
#[derive(Debug, Clone)]
pub struct BindJob {
    /// The pod as it was when its node was chosen.
    pub pod: Arc<PodInfo>,
    /// The node the pod is bound to.
    pub node: Arc<str>,
    /// Claims to write first.
    pub claims: Vec<ClaimTask>,
    /// Claims of another generation to write first.
    pub plugin_claims: Option<Shared>,
    /// A claim to create first.
    pub extended: Option<ExtendedResourceClaimTask>,
    /// What to write about its volumes first.
    pub volumes: VolumeTasks,
    /// The node resources that come with the pod's devices, for the pod's status.
    pub node_allocatable: NodeAllocatableRequests,
    /// Report when everything is written instead of binding at once: a watch must show the writes first, binding
    /// conditions must become true, or volumes must be bound. Until then the binding cycle can be canceled. False if
    /// nothing but claims of another generation is to be written.
    pub wait: bool,
    /// The binding may take long: publish the node as nomination.
    pub announce: bool,
    /// Canceled when the pod must not be bound any longer: no other write is begun for it then.
    pub cancel: CancellationToken,
}

/// What pods are preempted for.
#[derive(Debug, Clone)]
pub struct Preemptor {
    /// The pod that needs the capacity, or one of the PodGroup.
    pub pod: Arc<PodInfo>,
    /// The PodGroup, if pods are preempted for all of its pods together.
    pub group: Option<Arc<PodGroup>>,
}

impl Preemptor {
    /// The kind in upstream's texts.
    pub fn kind(&self) -> &'static str {
        match self.group {
            Some(_) => "podgroup",
            None => "pod",
        }
    }

    /// UID of the pod or PodGroup.
    pub fn uid(&self) -> &Uid {
        self.group
            .as_ref()
            .map_or(&self.pod.uid, |group| &group.uid)
    }

    /// Namespace and name of the pod or PodGroup.
    pub fn key(&self) -> &Key {
        self.group
            .as_ref()
            .map_or(&self.pod.key, |group| &group.key)
    }
}

/// A pod that could not be scheduled, for its condition and an event.
#[derive(Debug, Clone)]
pub struct Rejected {
    /// The pod as it was at the attempt.
    pub pod: Arc<PodInfo>,
    /// `Unschedulable` or `SchedulerError`.
    pub reason: &'static str,
    /// The reason with upstream's text, for condition and event.
    pub message: String,
    /// The unsatisfied requests on the nearest node; reported in the event only.
    pub explanation: Option<String>,
    /// What to do with the pod's nominated node.
    pub nominate: Nominate,
}

/// What to do with the pod's nominated node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nominate {
    /// Leave it as it is.
    Keep,
    /// The pod is expected on this node.
    Set(Arc<str>),
    /// Clear the nomination.
    Clear,
}

/// A write that the core decided on.
#[derive(Debug, Clone)]
pub enum Action {
    /// Write the pod's claims, then its binding.
    Bind(Box<BindJob>),
    /// Write the binding; claims are written.
    BindPod {
        /// The pod.
        pod: Arc<PodInfo>,
        /// The node the pod is bound to.
        node: Arc<str>,
    },
    /// Report that a pod could not be scheduled.
    Reject(Box<Rejected>),
    /// Delete pods so that another fits.
    Preempt {
        /// The pod or PodGroup that needs the capacity.
        preemptor: Preemptor,
        /// The node, or `cluster` for a PodGroup.
        node: Arc<str>,
        /// The pods to delete.
        victims: Vec<Arc<PodInfo>>,
    },
    /// Record the event that a pod was preempted before it was bound.
    RecordPreempted {
        /// The pod or PodGroup that needs the capacity.
        preemptor: Preemptor,
        /// The node, or `cluster` for a PodGroup.
        node: Arc<str>,
        /// The pod whose binding is abandoned.
        victim: Arc<PodInfo>,
    },
    /// Clear the nomination of a pod, because a pod of higher priority is nominated to its node.
    ClearNomination(Arc<PodInfo>),
    /// Clear from a pod's status what [`BindJob::node_allocatable`] recorded there, because its binding failed.
    ClearNodeAllocatable(Arc<PodInfo>),
    /// Deallocate a claim that no pod uses.
    Deallocate(Arc<ResourceClaim>),
    /// Delete an extended resource claim that its pod no longer uses.
    DeleteExtendedResourceClaim(Arc<ResourceClaim>),
    /// Remove the reservation for a pod whose binding failed.
    Unreserve {
        /// The pod.
        pod: Uid,
        /// The claim.
        claim: Arc<ResourceClaim>,
    },
    /// Fence, then write: bump the pods' `resourceVersion`, so that a Binding of an earlier scheduler that is still in flight
    /// gets a conflict, then carry out `then`.
    Fenced {
        /// The pods.
        pods: Vec<Arc<PodInfo>>,
        /// What to write then, unless one of them has a node.
        then: Box<Action>,
    },
    /// A write of the plugin for claims of another generation.
    ClaimPlugin(Shared),
    /// Report in the status of a PodGroup whether its pods were placed.
    UpdatePodGroupStatus {
        /// The group.
        group: Key,
        /// UID of the PodGroup.
        uid: Uid,
        /// The condition to write.
        condition: Condition,
    },
    /// Record the event that a pod waits for binding conditions.
    RecordWaitForConditions {
        /// The pod.
        pod: Arc<PodInfo>,
        /// The node the pod is bound to.
        node: Arc<str>,
        /// The conditions, with their devices.
        pending: Vec<Pending>,
    },
    /// Record the event that a pod is not tried, because a claim that it names does not exist.
    RecordMissingClaim {
        /// The pod.
        pod: Arc<PodInfo>,
        /// The missing object, in upstream's wording.
        text: String,
    },
}
