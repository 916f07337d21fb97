//! The scheduler's state and everything it decides. No I/O, no clock, no threads that outlive a call.
//!
//! Observations and outcomes of writes come in as [`Input`], decisions go out as [`Action`]; both in one order, through
//! one owner. So an attempt always sees a consistent state, nothing changes during it, and a run is a function of its
//! inputs: the simulation in the tests replays any run exactly.

use std::sync::Arc;

use allot_framework::claim_plugin::{ClaimPlugin, Message};
use allot_model::features::Feature;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, ResourceQuota,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::actions::Action;
use crate::attempt::NodeMemo;
use crate::cache::Cache;
use crate::config::{Config, Profile};
use crate::device_allocator::DeviceAllocator;
use crate::device_allocator::classes::Classes;
use crate::dra::DraContext;
use crate::dra::claims::Claims;
use crate::dra::node_allocatable::Mappings;
use crate::metrics::Metrics;
use crate::nominations::Nominations;
use crate::pod::{Key, PodInfo, Uid};
use crate::podgroups::PodGroups;
use crate::podgroups::claims::PodGroup;
use crate::preemption::Budget;
use crate::queue::{Now, Queue};
use crate::taint_rules::DeviceTaintRule;
use allot_reflector::Observed;

mod binding;
mod claim_plugin;
mod devices;
mod explain;
mod failure;
mod gang;
mod nodes;
mod nominate;
mod pods;
mod requeue;
mod reserve;
mod schedule;
mod volumes;
mod waiting;

use nominate::PendingVictims;
use waiting::Waiting;

pub use binding::BindError;
use binding::Binding;
pub use devices::allocator_features;
pub(crate) use devices::groups_have_claims;
pub use explain::{Chosen, Expected, NodeVerdict, Verdict};
pub(crate) use gang::groups_matter;
pub use gang::{GangOutcome, GangVerdict, MemberVerdict, UnscheduledMember, has_gangs};

/// An observation, or the outcome of a write.
#[derive(Debug)]
pub enum Input {
    /// Nodes.
    Node(Observed<Node>),
    /// Pods.
    Pod(Observed<Arc<PodInfo>>),
    /// Claims.
    Claim(Observed<ResourceClaim>),
    /// Slices.
    Slice(Observed<ResourceSlice>),
    /// Device classes.
    Class(Observed<DeviceClass>),
    /// Rules that taint devices.
    TaintRule(Observed<DeviceTaintRule>),
    /// Groups of pods.
    PodGroup(Observed<PodGroup>),
    /// Disruption budgets.
    Budget(Observed<PodDisruptionBudget>),
    /// Namespaces.
    Namespace(Observed<Namespace>),
    /// Claims for volumes.
    VolumeClaim(Observed<PersistentVolumeClaim>),
    /// Volumes.
    Volume(Observed<PersistentVolume>),
    /// Classes of volumes.
    StorageClass(Observed<StorageClass>),
    /// Limits on the volumes of a node, by CSI driver.
    CsiNode(Observed<CSINode>),
    /// Volumes that take a place on a node.
    VolumeAttachment(Observed<VolumeAttachment>),
    /// Drivers of volumes.
    CsiDriver(Observed<CSIDriver>),
    /// How much space there is for volumes.
    StorageCapacity(Observed<CSIStorageCapacity>),
    /// Quotas.
    Quota(Observed<ResourceQuota>),
    /// The volumes and the claims for volumes of a pod are written.
    VolumesWritten {
        /// The pod that the write is for.
        pod: Uid,
        /// Names of the volumes that were written, each with the `resourceVersion` of the response.
        volumes: Vec<(String, String)>,
        /// Claims, with the version of the answer.
        claims: Vec<(Key, String)>,
    },
    /// A claim was written for a pod.
    ClaimWritten {
        /// The pod that the write is for.
        pod: Uid,
        /// The UID under which the allocation is in flight.
        in_flight: Uid,
        /// The claim as the server answered.
        claim: Arc<ResourceClaim>,
    },
    /// Taking the allocation of a claim back is over, or with a pod the reservation for it.
    Released {
        /// The claim.
        key: Key,
        /// UID of the claim.
        uid: Uid,
        /// The pod.
        pod: Option<Uid>,
        /// The claim after the write; `None` if that is not known.
        claim: Option<Arc<ResourceClaim>>,
    },
    /// All claims of a pod are written; its binding waits for a watch to show that, for conditions, or for volumes.
    ClaimsReady(Uid),
    /// An input for the plugin for claims of another generation.
    ClaimPlugin(Box<dyn Message>),
    /// A victim cannot be deleted.
    NotPreempted(Uid),
    /// The binding of a pod is over.
    Bound {
        /// The pod.
        pod: Uid,
        /// The outcome of the binding.
        outcome: Result<(), BindError>,
    },
}

/// Time of a call: monotonic for waiting, wall clock for the API.
#[derive(Debug, Clone, Copy)]
pub struct Time {
    /// Since the scheduler started.
    pub now: Now,
    /// The wall-clock time, as timestamps of the API have it.
    pub wall: Timestamp,
}

/// The state. See the module.
pub struct Core {
    config: Config,
    metrics: Metrics,
    queue: Queue,
    cache: Cache,
    claims: Claims,
    classes: Classes,
    claim_plugin: Option<Box<dyn ClaimPlugin>>,
    allocator: DeviceAllocator,
    pods: FxHashMap<Key, Arc<PodInfo>>,
    /// Pods that were pending when the scheduler started: a previous scheduler may be binding them.
    inherited: FxHashMap<Uid, Key>,
    pods_listed: bool,
    slices: FxHashSet<String>,
    slices_listed: bool,
    /// Mappings from devices to node resources, if the feature is on.
    node_allocatable: Option<Mappings>,
    /// PodGroups, if they are used.
    gangs: Option<PodGroups>,
    rules: FxHashMap<String, DeviceTaintRule>,
    budgets: FxHashMap<Key, Budget>,
    nominations: Nominations,
    /// Preemptors, with the victims that no watch has shown terminating yet.
    preempting: FxHashMap<Uid, PendingVictims>,
    bindings: FxHashMap<Uid, Binding>,
    /// Bindings that wait for a watch to show their claims, for binding conditions, or for volumes.
    waiting: Waiting,
    next_start: usize,
    node_memo: NodeMemo,
    actions: Vec<Action>,
}

impl Core {
    /// A scheduler without any observation.
    pub fn new(config: Config, metrics: Metrics) -> Self {
        let config = config.without_disabled();
        let features = devices::allocator_features(&config.features);
        Self {
            queue: Queue::new(config.backoff),
            cache: Cache::default(),
            claims: Claims::new(allot_allocator::Cluster::new(features))
                .with_groups(groups_have_claims(&config.features)),
            classes: Classes::default(),
            claim_plugin: None,
            allocator: DeviceAllocator::new(features, config.sources.clone()),
            pods: FxHashMap::default(),
            inherited: FxHashMap::default(),
            pods_listed: false,
            slices: FxHashSet::default(),
            slices_listed: false,
            node_allocatable: config
                .features
                .enabled(Feature::DRANodeAllocatableResources)
                .then(Mappings::default),
            gangs: groups_matter(&config.features).then(PodGroups::default),
            rules: FxHashMap::default(),
            budgets: FxHashMap::default(),
            nominations: Nominations::default(),
            preempting: FxHashMap::default(),
            bindings: FxHashMap::default(),
            waiting: Waiting::default(),
            next_start: 0,
            node_memo: NodeMemo::default(),
            actions: Vec::new(),
            metrics,
            config,
        }
    }

    /// Handles one input.
    pub fn handle(&mut self, input: Input, time: Time) {
        match input {
            Input::Node(o) => self.observe_nodes(o, time),
            Input::Pod(o) => self.observe_pods(o, time),
            Input::Claim(o) => self.observe_claims(o, time),
            Input::Slice(o) => self.observe_slices(o, time),
            Input::Class(o) => self.observe_classes(o, time),
            Input::TaintRule(o) => self.observe_rules(o, time),
            Input::PodGroup(o) => self.observe_groups(o, time),
            Input::Budget(o) => self.observe_budgets(o),
            Input::Namespace(o) => self.observe_namespaces(o, time),
            Input::VolumeClaim(o) => self.observe_volume_claims(o, time),
            Input::Volume(o) => self.observe_volumes(o, time),
            Input::StorageClass(o) => self.observe_storage_classes(o, time),
            Input::CsiNode(o) => self.observe_csi_nodes(o, time),
            Input::VolumeAttachment(o) => self.observe_attachments(o, time),
            Input::CsiDriver(o) => self.observe_csi_drivers(o, time),
            Input::StorageCapacity(o) => self.observe_capacities(o, time),
            Input::Quota(o) => self.observe_quotas(o, time),
            Input::VolumesWritten {
                pod,
                volumes,
                claims,
            } => self.volumes_written(&pod, volumes, claims),
            Input::ClaimWritten {
                pod,
                in_flight,
                claim,
            } => self.claim_written(&pod, &in_flight, claim, time),
            Input::Released {
                key,
                uid,
                pod,
                claim,
            } => self.released((&key, &uid), pod, claim, time),
            Input::ClaimPlugin(message) => self.claim_plugin_input(message, time),
            Input::ClaimsReady(pod) => self.claims_ready(&pod, time),
            Input::NotPreempted(victim) => self.victim_terminating(&victim, time),
            Input::Bound { pod, outcome } => self.bound(&pod, outcome, time),
        }
        self.queue_changed(time);
    }

    /// Decisions since the last call.
    pub fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// When to call [`Core::tick`] without any input.
    pub fn next_wakeup(&self, time: Time) -> Option<Now> {
        let conditions = self.next_deadline(time);
        [self.queue.next_wakeup(), conditions]
            .into_iter()
            .flatten()
            .min()
    }

    /// The next deadline of a binding that waits; it passes without an input.
    pub fn next_deadline(&self, time: Time) -> Option<Now> {
        self.waiting.deadline().map(|at| {
            let left = at.duration_since(time.wall);
            time.now + std::time::Duration::try_from(left).unwrap_or_default()
        })
    }

    /// Handles deadlines that have passed.
    pub fn tick(&mut self, time: Time) {
        self.check_conditions(time);
    }

    /// Number of pods per part of the queue.
    pub fn queue_counts(&self) -> crate::queue::Counts {
        self.queue.counts()
    }

    /// Updates the gauges of the metrics.
    pub fn measure(&mut self) {
        let (moved, rejected) = self.queue.take_moves();
        self.metrics.moved(moved, rejected);
        self.metrics.record_work(self.allocator.take_work());
        self.metrics.sizes(
            self.queue.counts(),
            self.cache.snapshot().nodes.len(),
            self.bindings.len(),
        );
    }

    /// Returns a closure that counts devices by class, to run in another thread: it takes time in proportion to the
    /// cluster.
    pub fn census(&self) -> impl FnOnce() + Send + use<> {
        let cluster = self.claims.cluster().clone();
        let names = self.classes.names();
        let classes = names.filter_map(|name| Some((name.to_owned(), self.classes.get(name)?)));
        let classes: Vec<_> = classes
            .map(|(name, class)| (name, self.allocator.selectors(class)))
            .collect();
        let metrics = self.metrics.clone();
        move || metrics.full(cluster.census(&classes))
    }

    /// Nodes and pods as the scheduler sees them.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Claims and devices as the scheduler sees them.
    pub fn claims(&self) -> &Claims {
        &self.claims
    }

    /// The scheduler names of all profiles: pods that name another scheduler are left alone.
    pub fn profile_names(&self) -> Vec<&str> {
        self.config.profiles.iter().map(|p| &*p.name).collect()
    }

    /// The profile for a scheduler name.
    fn profile(&self, name: &str) -> Option<&Profile> {
        self.config.profiles.iter().find(|p| *p.name == *name)
    }

    /// The state that the plugin DynamicResources reads.
    fn dra<'a>(&'a self, profile: &Profile, time: Time) -> DraContext<'a> {
        let on = |f| self.config.features.enabled(f);
        DraContext {
            claims: &self.claims,
            pods: &self.pods,
            classes: &self.classes,
            allocator: &self.allocator,
            binding_timeout: profile.dynamic_resources.binding_timeout,
            binding_conditions: on(Feature::DRADeviceBindingConditions)
                && on(Feature::DRAResourceClaimDeviceStatus),
            extended_resources: on(Feature::DRAExtendedResource),
            node_allocatable: self.node_allocatable.as_ref(),
            prioritized_list: on(Feature::DRAPrioritizedList),
            claim_plugin: self.claim_plugin.as_deref(),
            skip_alternatives: 0,
            now: time.wall,
        }
    }
}

#[cfg(test)]
mod tests;
