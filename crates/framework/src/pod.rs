//! A pod as the scheduler sees it: parsed once, shared by queue, cache and attempts.

use std::sync::Arc;

use allot_apimachinery::well_known::is_terminal_phase;
use allot_model::tolerations::has_comparison_operator;
use k8s_openapi::api::core::v1::{
    NodeAllocatableResourceClaimStatus, Pod, PodAffinityTerm, PodResourceClaimStatus, PodSpec,
    PodStatus, Toleration, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::resources::{self, Resources, node_allocatable};
use crate::selectors::LabelMap;

mod affinity;
pub mod claims;
pub mod disks;
mod ports;

pub use affinity::AffinityTerm;
use disks::Disk;
pub use ports::HostPort;
use ports::host_ports;

/// Namespace and name of an object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    /// The name within the namespace.
    pub name: Arc<str>,
}

impl Key {
    /// A key from its parts.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// Namespace and name out of an object's metadata.
pub fn key_of(meta: &ObjectMeta) -> Key {
    Key::new(
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
    )
}

/// Identity of an object over its life; a deleted and re-created object has another one.
pub type Uid = Arc<str>;

/// The pods of one controller: its namespace and its identity.
pub type Replicated = (Arc<str>, Uid);

/// A pod with everything that plugins need, computed once.
#[derive(Debug, Clone)]
pub struct PodInfo {
    /// The pod as it was observed.
    pub pod: Arc<Pod>,
    /// Namespace and name of the pod.
    pub key: Key,
    /// UID of the pod.
    pub uid: Uid,
    /// The controller, such as a ReplicaSet.
    pub controller: Option<Uid>,
    /// Resource requests.
    pub requests: Resources,
    /// CPU (thousandths) and memory with defaults for containers that request none.
    pub nonzero: (i64, i64),
    /// Ports it takes on its node.
    pub ports: Vec<HostPort>,
    /// Disks that it names itself.
    pub disks: Vec<Disk>,
    /// Terms that must hold.
    pub required_affinity: Vec<AffinityTerm>,
    /// Terms that must not hold.
    pub required_anti_affinity: Vec<AffinityTerm>,
    /// Weighted wishes.
    pub preferred_affinity: Vec<(i32, AffinityTerm)>,
    /// Weighted wishes against.
    pub preferred_anti_affinity: Vec<(i32, AffinityTerm)>,
    /// The pod was preempted and is about to be deleted.
    pub is_preempted: bool,
}

impl PodInfo {
    /// Parses a pod.
    pub fn new(pod: Arc<Pod>) -> Self {
        let key = Key::new(
            pod.metadata.namespace.as_deref().unwrap_or_default(),
            pod.metadata.name.as_deref().unwrap_or_default(),
        );
        let uid = Uid::from(pod.metadata.uid.as_deref().unwrap_or_default());
        let affinity = pod.spec.as_ref().and_then(|s| s.affinity.as_ref());
        let (with, against) = (
            affinity.and_then(|a| a.pod_affinity.as_ref()),
            affinity.and_then(|a| a.pod_anti_affinity.as_ref()),
        );
        let required = |terms: Option<&Vec<PodAffinityTerm>>| {
            terms
                .into_iter()
                .flatten()
                .map(|t| AffinityTerm::new(&pod, t))
                .collect::<Vec<_>>()
        };
        let required_affinity = required(with.and_then(|a| {
            a.required_during_scheduling_ignored_during_execution
                .as_ref()
        }));
        let required_anti_affinity = required(against.and_then(|a| {
            a.required_during_scheduling_ignored_during_execution
                .as_ref()
        }));
        let preferred = |terms: Option<&Vec<WeightedPodAffinityTerm>>| {
            terms
                .into_iter()
                .flatten()
                .map(|t| (t.weight, AffinityTerm::new(&pod, &t.pod_affinity_term)))
                .collect()
        };
        let preferred_affinity = preferred(with.and_then(|a| {
            a.preferred_during_scheduling_ignored_during_execution
                .as_ref()
        }));
        let preferred_anti_affinity = preferred(against.and_then(|a| {
            a.preferred_during_scheduling_ignored_during_execution
                .as_ref()
        }));
        Self {
            is_preempted: is_preempted(&pod),
            controller: replicated_by(&pod),
            requests: requests(&pod),
            nonzero: resources::pod_requests_nonzero(&pod, is_bound(&pod)),
            ports: host_ports(&pod),
            disks: Disk::all(&pod),
            required_affinity,
            required_anti_affinity,
            preferred_affinity,
            preferred_anti_affinity,
            key,
            uid,
            pod,
        }
    }

    /// Parses a pod from a watch. Of a bound pod only the fields that matter to other pods are kept.
    pub fn observed(pod: Pod) -> Self {
        let mut info = Self::new(Arc::new(pod));
        if info.node_name().is_none() {
            return info;
        }
        if let Some(pod) = Arc::get_mut(&mut info.pod) {
            pod.metadata.owner_references = None;
            if let Some(spec) = &mut pod.spec {
                let mut volumes = spec.volumes.take().unwrap_or_default();
                volumes.retain(|v| v.persistent_volume_claim.is_some() || v.ephemeral.is_some());
                *spec = PodSpec {
                    volumes: (!volumes.is_empty()).then_some(volumes),
                    node_name: spec.node_name.take(),
                    priority: spec.priority,
                    scheduler_name: spec.scheduler_name.take(),
                    scheduling_group: spec.scheduling_group.take(),
                    ..PodSpec::default()
                };
            }
            if let Some(status) = &mut pod.status {
                *status = PodStatus {
                    phase: status.phase.take(),
                    start_time: status.start_time.take(),
                    ..PodStatus::default()
                };
            }
        }
        info
    }

    /// The pod as it counts on its node when devices provide node resources beside its requests.
    #[must_use]
    pub fn with_node_allocatable(&self, claims: &[NodeAllocatableResourceClaimStatus]) -> Self {
        let mut info = self.clone();
        info.requests
            .add(&node_allocatable::recorded(&self.pod, claims));
        info
    }

    /// Sum of its containers' requests, without pod-level resources.
    pub fn containers(&self) -> Resources {
        let mut pod = (*self.pod).clone();
        if let Some(spec) = &mut pod.spec {
            spec.resources = None;
        }
        resources::pod_requests(&pod, is_bound(&pod))
    }

    /// The specification; pods always have one.
    pub fn spec(&self) -> &PodSpec {
        static EMPTY: std::sync::OnceLock<PodSpec> = std::sync::OnceLock::new();
        self.pod
            .spec
            .as_ref()
            .unwrap_or_else(|| EMPTY.get_or_init(PodSpec::default))
    }

    /// Labels, if any.
    pub fn labels(&self) -> Option<&LabelMap> {
        self.pod.metadata.labels.as_ref()
    }

    /// The controller and template of the pod, if it has a controller.
    pub fn replicated(&self) -> Option<Replicated> {
        let controller = self.controller.clone()?;
        Some((self.key.namespace.clone(), controller))
    }

    /// The priority that admission computed; zero without one.
    pub fn priority(&self) -> i32 {
        self.spec().priority.unwrap_or(0)
    }

    /// Tolerations of node taints.
    pub fn tolerations(&self) -> &[Toleration] {
        self.spec().tolerations.as_deref().unwrap_or_default()
    }

    /// The pod without the tolerations that compare numbers: without their feature they tolerate nothing.
    #[must_use]
    pub fn without_comparison_operators(self: Arc<Self>) -> Arc<Self> {
        if !self.tolerations().iter().any(has_comparison_operator) {
            return self;
        }
        let mut info = Arc::unwrap_or_clone(self);
        let spec = &mut Arc::make_mut(&mut info.pod).spec;
        if let Some(tolerations) = spec.as_mut().and_then(|spec| spec.tolerations.as_mut()) {
            tolerations.retain(|toleration| !has_comparison_operator(toleration));
        }
        Arc::new(info)
    }

    /// The node it is bound to.
    pub fn node_name(&self) -> Option<&str> {
        self.spec().node_name.as_deref().filter(|n| !n.is_empty())
    }

    /// The name of the group that it is in.
    pub fn group(&self) -> Option<&str> {
        self.spec()
            .scheduling_group
            .as_ref()?
            .pod_group_name
            .as_deref()
    }

    /// `status.nominatedNodeName`.
    pub fn nominated_node(&self) -> Option<&str> {
        self.pod
            .status
            .as_ref()?
            .nominated_node_name
            .as_deref()
            .filter(|n| !n.is_empty())
    }

    /// Whether a later version of the pod has the same claims from templates.
    pub fn has_claims_of(&self, later: &Pod) -> bool {
        fn claims(pod: &Pod) -> &[PodResourceClaimStatus] {
            let status = pod.status.as_ref();
            let claims = status.and_then(|s| s.resource_claim_statuses.as_deref());
            claims.unwrap_or_default()
        }
        claims(later) == claims(&self.pod)
    }

    /// Whether deletion was requested.
    pub fn is_terminating(&self) -> bool {
        self.pod.metadata.deletion_timestamp.is_some()
    }

    /// Whether the pod has finished; it no longer uses resources of its node.
    pub fn is_finished(&self) -> bool {
        is_finished(&self.pod)
    }

    /// Whether the pod has any kind of pod affinity.
    pub fn has_affinity(&self) -> bool {
        !(self.required_affinity.is_empty()
            && self.required_anti_affinity.is_empty()
            && self.preferred_affinity.is_empty()
            && self.preferred_anti_affinity.is_empty())
    }
}

/// What a pod requests, and once it is on a node what devices give it beside that.
fn requests(pod: &Pod) -> Resources {
    let bound = is_bound(pod);
    let mut requests = resources::pod_requests(pod, bound);
    let status = pod.status.as_ref().filter(|_| bound);
    if let Some(claims) = status.and_then(|s| s.node_allocatable_resource_claim_statuses.as_ref()) {
        requests.add(&node_allocatable::recorded(pod, claims));
    }
    requests
}

fn is_bound(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|s| s.node_name.is_some())
}

fn is_preempted(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_deref());
    conditions.unwrap_or_default().iter().any(|c| {
        c.type_ == "DisruptionTarget"
            && c.status == "True"
            && c.reason.as_deref() == Some("PreemptionByScheduler")
    })
}

/// Whether a pod has finished, by its phase.
pub fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    phase.is_some_and(is_terminal_phase)
}

/// `spec.schedulerName`, which selects the profile; the default is `default-scheduler`.
pub fn scheduler_name(pod: &Pod) -> &str {
    pod.spec
        .as_ref()
        .and_then(|s| s.scheduler_name.as_deref())
        .filter(|n| !n.is_empty())
        .unwrap_or("default-scheduler")
}

/// The controller of a pod, if it is of a kind whose pods are spread by default.
fn replicated_by(pod: &Pod) -> Option<Uid> {
    let owners = pod.metadata.owner_references.iter().flatten();
    owners
        .filter(|o| o.controller == Some(true))
        .find(|o| {
            matches!(
                o.kind.as_str(),
                "ReplicaSet" | "StatefulSet" | "ReplicationController"
            )
        })
        .map(|o| Uid::from(o.uid.as_str()))
}
