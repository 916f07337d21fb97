//! One attempt's view of the devices that a pod needs.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use allot_framework::claim_plugin::ClaimPlugin;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ContainerExtendedResourceRequest;
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceRequest, ResourceClaim};
use rustc_hash::FxHashMap;

use super::claims::{Claims, allocation_of, uid_of};
use super::node_allocatable::{Mappings, NodeAllocatableRequests};
use super::{conditions, resolve};
use crate::device_allocator::classes::Classes;
use crate::device_allocator::{AllocationRequest, DeviceAllocator};
use crate::framework::Plugin;
use crate::node::NodeInfo;
use crate::pod::{Key, PodInfo, Uid};
use crate::podgroups::claims::Consumer;
use crate::selectors::Nodes;
use crate::status::{MUST_BE_REALLOCATED, Rejection};

mod alternatives;
mod classes;
mod cleanup;
mod counts;
mod explain;
mod extended;
mod node;

pub use alternatives::next_skip;
use classes::check_classes;
pub use classes::missing_class;
pub use cleanup::ClaimCleanup;
pub use counts::Counts;
pub use explain::NodeNearness;
use extended::ExtendedResources;

const PLUGIN: Plugin = Plugin::DynamicResources;

/// The state that the plugin DynamicResources reads.
#[derive(Clone, Copy)]
pub struct DraContext<'a> {
    /// Claims and devices.
    pub claims: &'a Claims,
    /// The pods that have not finished, by namespace and name.
    pub pods: &'a FxHashMap<Key, Arc<PodInfo>>,
    /// Device classes.
    pub classes: &'a Classes,
    /// Compiles and solves allocation requests.
    pub allocator: &'a DeviceAllocator,
    /// How long binding conditions may take.
    pub binding_timeout: Duration,
    /// Whether devices may have binding conditions.
    pub binding_conditions: bool,
    /// Whether device classes provide extended resources.
    pub extended_resources: bool,
    /// The node resources of devices, if the feature is on.
    pub node_allocatable: Option<&'a Mappings>,
    /// Whether requests may be lists of alternatives.
    pub prioritized_list: bool,
    /// The plugin for claims of another generation, if the server serves them.
    pub claim_plugin: Option<&'a dyn ClaimPlugin>,
    /// How many of the best alternatives of each list to leave to others.
    pub skip_alternatives: usize,
    /// Wall-clock time of the attempt.
    pub now: Timestamp,
}

impl DraContext<'_> {
    /// Prepares claims of a pod, within what the quotas of its namespace leave.
    fn request(&self, pod: &PodInfo, claims: &[&ResourceClaim]) -> AllocationRequest {
        let quotas = self.claims.quotas();
        let limit = |request: &mut _| quotas.limit(&pod.key.namespace, request);
        self.allocator.prepare(self.classes, claims, limit)
    }

    /// The quotas that a request of a pod exceeds, or may.
    fn exceeded(&self, pod: &PodInfo, request: &AllocationRequest) -> Vec<String> {
        let quotas = self.claims.quotas();
        quotas.exceeded(&pod.key.namespace, request)
    }
}

/// A ResourceClaim that the pod uses, with what PreFilter learned about it.
#[derive(Debug)]
pub struct PodClaim {
    /// Namespace and name of the claim.
    pub key: Key,
    /// The newest known version.
    pub claim: Arc<ResourceClaim>,
    /// The consumer that it is reserved for.
    pub consumer: Consumer,
    /// The allocation, written or in flight.
    pub allocation: Option<Arc<AllocationResult>>,
    /// The nodes where the allocation can be used.
    nodes: Option<Nodes>,
    /// Allocated, but failed or late, or with what another claim had before.
    hopeless: bool,
    /// Allocated for an earlier attempt that failed.
    left: bool,
}

/// The extended resource claim as it would be on a node.
#[derive(Debug, Clone)]
pub struct ExtendedResourceClaimOnNode {
    /// The claim to create.
    pub claim: Arc<ResourceClaim>,
    /// Which container uses which request.
    pub mappings: Vec<ContainerExtendedResourceRequest>,
    /// The allocation to write.
    pub allocation: Arc<AllocationResult>,
}

/// The allocations that the pod would get on a node.
#[derive(Debug, Clone, Default)]
pub struct NodeDevices {
    /// Allocations for claims that had none, by key and UID.
    pub allocations: Vec<(Key, Uid, Arc<AllocationResult>)>,
    /// The extended resource claim, if needed on this node.
    pub extended: Option<ExtendedResourceClaimOnNode>,
    /// Node resources that come with the devices.
    pub node_allocatable: NodeAllocatableRequests,
}

/// The claims of a pod, prepared for judging nodes.
#[derive(Debug)]
pub struct PodDevices {
    pod: Arc<PodInfo>,
    claims: Vec<PodClaim>,
    request: Option<AllocationRequest>,
    extended: Option<ExtendedResources>,
    /// The quotas that the request exceeds, or may: the text for every node that has no devices for it.
    exceeded: OnceLock<Vec<String>>,
}

impl PodDevices {
    /// Looks up and checks the claims of a pod; `None` when it has none.
    pub fn prepare(pod: &Arc<PodInfo>, cx: &DraContext<'_>) -> Result<Option<Self>, Rejection> {
        let resolved = resolve::all(pod, cx.claim_plugin, cx.claims)
            .map_err(|e| Rejection::unresolvable(PLUGIN, e.to_string()))?;
        let extended = ExtendedResources::new(pod, cx);
        if resolved.is_empty() && extended.is_none() {
            return Ok(None);
        }
        let mut claims = Vec::with_capacity(resolved.len());
        for resolve::Resolved {
            key,
            claim,
            consumer,
        } in resolved
        {
            if cx.claims.is_releasing(uid_of(&claim), &pod.uid) {
                return Err(Rejection::unresolvable(PLUGIN, MUST_BE_REALLOCATED));
            }
            let pending = cx
                .claims
                .in_flight(uid_of(&claim))
                .map(|p| p.allocation.clone());
            let allocation = allocation_of(&claim).cloned().map(Arc::new).or(pending);
            if allocation.is_none() {
                check_classes(&claim, cx)?;
            }
            let nodes = allocation
                .as_ref()
                .and_then(|a| a.node_selector.as_ref())
                .map(Nodes::new);
            let is_written = allocation_of(&claim).is_some();
            let hopeless = is_written
                && (cx.binding_conditions
                    && conditions::is_hopeless(&claim, cx.binding_timeout, cx.now)
                    || cx.claims.must_yield(&claim, cx.pods).is_some());
            let left = cx.claims.is_orphaned(uid_of(&claim));
            claims.push(PodClaim {
                key,
                claim,
                consumer,
                allocation,
                nodes,
                hopeless,
                left,
            });
        }
        let open = claims.iter().filter(|c| c.allocation.is_none());
        let open: Vec<Cow<'_, ResourceClaim>> = open
            .map(|c| alternatives::without_first(&c.claim, cx.skip_alternatives))
            .collect();
        let open: Vec<&ResourceClaim> = open.iter().map(|c| &**c).collect();
        let request = (!open.is_empty()).then(|| cx.request(pod, &open));
        // No node changes that.
        if let Some(request) = request.as_ref().filter(|r| r.exceeds()) {
            let exceeded = cx.exceeded(pod, request);
            return Err(Rejection::unresolvable(PLUGIN, exceeded.join("; ")));
        }
        Ok(Some(Self {
            pod: pod.clone(),
            claims,
            request,
            extended,
            exceeded: OnceLock::new(),
        }))
    }

    /// Whether nodes differ in score, because the chosen alternative of a list counts.
    pub fn has_preferences(&self, cx: &DraContext<'_>) -> bool {
        let is_list = |c: &PodClaim| {
            requests_of(&c.claim)
                .iter()
                .any(|r| r.first_available.as_ref().is_some_and(|f| !f.is_empty()))
        };
        cx.prioritized_list && self.claims.iter().any(is_list)
    }

    /// Names of the extended resources that devices provide on nodes that do not.
    pub fn delegates(&self, resource: &str) -> bool {
        self.extended
            .as_ref()
            .is_some_and(|s| s.resources.iter().any(|(r, _)| r == resource))
    }

    /// Whether devices provide extended resources of the pod.
    pub fn has_extended(&self) -> bool {
        self.extended.is_some()
    }

    fn open(&self) -> impl Iterator<Item = &PodClaim> {
        self.claims.iter().filter(|c| c.allocation.is_none())
    }

    /// Sum of the positions of the chosen alternatives in their lists; earlier ones score higher.
    pub fn score(&self, devices: &NodeDevices) -> i64 {
        let mut score = 0;
        for claim in &self.claims {
            let fresh = devices
                .allocations
                .iter()
                .find(|(_, uid, _)| **uid == *uid_of(&claim.claim))
                .map(|(.., a)| a);
            let Some(allocation) = fresh.or(claim.allocation.as_ref()) else {
                continue;
            };
            for request in requests_of(&claim.claim) {
                score += chosen_alternative(request, allocation).map_or(0, |at| 8 - at as i64);
            }
        }
        score
    }

    /// The claims of the pod, in order.
    pub fn claims(&self) -> &[PodClaim] {
        &self.claims
    }
}

impl PodClaim {
    fn is_unavailable(&self, node: &NodeInfo) -> bool {
        self.hopeless
            || self
                .nodes
                .as_ref()
                .is_some_and(|n| !n.matches(&node.name, node.labels()))
    }
}

/// Position of the alternative that a request got, when it is a list.
fn chosen_alternative(request: &DeviceRequest, allocation: &AllocationResult) -> Option<usize> {
    let alternatives = request.first_available.as_ref()?;
    let results = allocation.devices.as_ref()?.results.as_ref()?;
    results.iter().find_map(|result| {
        let (base, sub) = result.request.split_once('/')?;
        (base == request.name).then(|| alternatives.iter().position(|a| a.name == sub))?
    })
}

fn requests_of(claim: &ResourceClaim) -> &[DeviceRequest] {
    claim
        .spec
        .devices
        .as_ref()
        .and_then(|d| d.requests.as_deref())
        .unwrap_or_default()
}
