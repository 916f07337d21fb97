//! Filter and Reserve of DynamicResources: the devices that a pod would get on a node.

use std::borrow::Cow;
use std::sync::Arc;

use allot_allocator::KnownFit;
use allot_resourceclaim::consumers;
use k8s_openapi::api::resource::v1::AllocationResult;

use super::extended::ExtendedResourceRequest;
use super::{
    DraContext, ExtendedResourceClaimOnNode, NodeDevices, PLUGIN, PodDevices, alternatives,
};
use crate::device_allocator::{AllocationRequest, Outcome, Prober};
use crate::dra::claims::uid_of;
use crate::dra::node_allocatable::Mappings;
use crate::node::NodeInfo;
use crate::pod::claims::claim_key;
use crate::status::{NOT_AVAILABLE, Rejection};

/// Upstream's text for a node without the devices.
const NO_FIT: &str = "cannot allocate all claims";

/// Whether there are devices for a pod, on one node after the other.
pub struct NodeChecks<'c> {
    devices: &'c PodDevices,
    cx: &'c DraContext<'c>,
    /// If only the free devices of a node matter, for the same request on all nodes.
    prober: Option<Prober<'c>>,
}

impl NodeChecks<'_> {
    /// As [`PodDevices::check`]. `known` is what an earlier call left for the node, for this pod or another.
    ///
    /// # Errors
    /// As [`PodDevices::filter`].
    pub fn check(
        &mut self,
        node: &NodeInfo,
        known: &mut Option<KnownFit>,
    ) -> Result<(), Rejection> {
        let (devices, cx) = (self.devices, self.cx);
        let (Some(prober), Some(request)) = (&mut self.prober, &devices.request) else {
            return devices.check(node, cx);
        };
        devices.usable(node, cx)?;
        let (outcome, request) = (prober.probe(node, known), Held::Borrowed(request));
        devices.allocated(outcome, &request, node, cx).map(drop)
    }
}

impl PodDevices {
    /// Checks nodes one after the other. Holds the lock of the allocator: no other search runs meanwhile.
    pub fn checks<'c>(&'c self, cx: &'c DraContext<'c>) -> NodeChecks<'c> {
        let request = self.request.as_ref();
        let is_simple = self.extended.is_none() && cx.node_allocatable.is_none_or(|m| m.is_empty());
        let request = request.filter(|_| is_simple);
        NodeChecks {
            devices: self,
            cx,
            prober: request.map(|request| cx.allocator.prober(cx.claims.cluster(), request)),
        }
    }

    /// Finds devices for the pod on a node.
    pub fn filter(&self, node: &NodeInfo, cx: &DraContext<'_>) -> Result<NodeDevices, Rejection> {
        let mut devices = self.allocate(node, cx)?;
        if let Some(mappings) = cx.node_allocatable.filter(|m| !m.is_empty()) {
            self.add_node_allocatable(&mut devices, mappings, cx)?;
            devices.node_allocatable.fits(&self.pod, node)?;
        }
        Ok(devices)
    }

    /// Whether there are devices for the pod on a node, without choosing any.
    ///
    /// # Errors
    /// As [`PodDevices::filter`].
    pub fn check(&self, node: &NodeInfo, cx: &DraContext<'_>) -> Result<(), Rejection> {
        if cx.node_allocatable.is_some_and(|m| !m.is_empty()) {
            return self.filter(node, cx).map(drop);
        }
        let extended = self.usable(node, cx)?;
        let Some(request) = self.request_with(extended.as_ref(), cx) else {
            return Ok(());
        };
        let outcome = cx.allocator.probe(cx.claims.cluster(), &request, node);
        self.allocated(outcome, &request, node, cx).map(drop)
    }

    /// The preference of the placement policy for the pod's allocation on a node; `None` if nothing new is allocated.
    pub fn preference(&self, node: &NodeInfo, cx: &DraContext<'_>) -> Option<i64> {
        let extended = self.usable(node, cx).ok()?;
        let request = self.request_with(extended.as_ref(), cx)?;
        cx.allocator.preference(cx.claims.cluster(), &request, node)
    }

    /// Adds the node resources of the devices. Only one pod can use them.
    fn add_node_allocatable(
        &self,
        devices: &mut NodeDevices,
        mappings: &Mappings,
        cx: &DraContext<'_>,
    ) -> Result<(), Rejection> {
        for claim in &self.claims {
            let uid = uid_of(&claim.claim);
            let fresh = devices.allocations.iter().find(|(_, u, _)| **u == *uid);
            let fresh = fresh.map(|(.., a)| a);
            let Some(allocation) = fresh.or(claim.allocation.as_ref()) else {
                continue;
            };
            let resources = mappings.of(allocation);
            if resources.is_empty() {
                continue;
            }
            let name = &*claim.key.name;
            let mut users = consumers(&claim.claim).iter();
            if users.any(|u| u.uid != *self.pod.uid) || cx.claims.in_flight(uid).is_some() {
                let text = format!(
                    "node allocatable resource claim {name} is already used by another pod"
                );
                return Err(Rejection::unresolvable(PLUGIN, text));
            }
            let entries = self.pod.spec().resource_claims.iter().flatten();
            let entries: Vec<&str> = entries
                .filter(|e| {
                    let key = claim_key(&self.pod, e).ok().flatten();
                    key.is_some_and(|k| k == claim.key)
                })
                .map(|e| e.name.as_str())
                .collect();
            devices
                .node_allocatable
                .add(&self.pod.pod, name, &entries, resources)?;
        }
        let extended = devices.extended.as_ref();
        if let Some((extended, resources)) = extended
            .map(|s| (s, mappings.of(&s.allocation)))
            .filter(|(_, resources)| !resources.is_empty())
        {
            devices
                .node_allocatable
                .add_extended_resource_claim(&extended.mappings, resources);
        }
        Ok(())
    }

    fn allocate(&self, node: &NodeInfo, cx: &DraContext<'_>) -> Result<NodeDevices, Rejection> {
        let extended = self.usable(node, cx)?;
        self.search(extended, node, cx)
    }

    /// The extended resources that devices must provide on a node, if existing allocations can be used there.
    fn usable(
        &self,
        node: &NodeInfo,
        cx: &DraContext<'_>,
    ) -> Result<Option<Arc<ExtendedResourceRequest>>, Rejection> {
        let extended = match &self.extended {
            Some(extended) => extended.on_node(node, cx)?,
            None => None,
        };
        match self.claims.iter().any(|c| c.is_unavailable(node)) {
            true => Err(Rejection::unresolvable(PLUGIN, NOT_AVAILABLE)),
            false => Ok(extended),
        }
    }

    /// Whether unavailable claims are the only reason why a node rejects the pod: only then can deallocating help.
    /// Upstream does not check that; it matters only when no node fits.
    ///
    /// # Errors
    /// When the other claims cannot be allocated there either.
    pub fn fits_otherwise(&self, node: &NodeInfo, cx: &DraContext<'_>) -> Result<(), Rejection> {
        let extended = match &self.extended {
            Some(extended) => extended.on_node(node, cx)?,
            None => None,
        };
        self.search(extended, node, cx).map(|_| ())
    }

    /// The required allocations on a node; `None` if none are required.
    pub(super) fn request_with(
        &self,
        extended: Option<&Arc<ExtendedResourceRequest>>,
        cx: &DraContext<'_>,
    ) -> Option<Held<'_>> {
        match (extended, &self.request) {
            (None, None) => None,
            (None, Some(request)) => Some(Held::Borrowed(request)),
            (Some(extended), None) => Some(Held::Extended(extended.clone())),
            // Both must come out of one search, since they compete for the same devices.
            (Some(extended), Some(_)) => {
                let all = self
                    .open()
                    .map(|c| alternatives::without_first(&c.claim, cx.skip_alternatives));
                Some(Held::Both(extended.with(&self.pod, all, cx)))
            }
        }
    }

    /// Devices for the claims that have none.
    fn search(
        &self,
        extended: Option<Arc<ExtendedResourceRequest>>,
        node: &NodeInfo,
        cx: &DraContext<'_>,
    ) -> Result<NodeDevices, Rejection> {
        let Some(request) = self.request_with(extended.as_ref(), cx) else {
            return Ok(NodeDevices::default());
        };
        let outcome = cx.allocator.solve(cx.claims.cluster(), &request, node);
        let results = self.allocated(outcome, &request, node, cx)?;
        let mut results = results.into_iter().map(Arc::new);
        let mut devices = NodeDevices::default();
        for claim in self.open() {
            let Some(allocation) = results.next() else {
                return Err(Rejection::unresolvable(PLUGIN, NO_FIT));
            };
            devices
                .allocations
                .push((claim.key.clone(), uid_of(&claim.claim).into(), allocation));
        }
        if let (Some(extended), Some(allocation)) = (extended, results.next()) {
            devices.extended = Some(ExtendedResourceClaimOnNode {
                claim: extended.claim.clone(),
                mappings: extended.mappings.clone(),
                allocation,
            });
        }
        Ok(devices)
    }

    /// The allocation, or the reason for the failure in upstream's wording; with the quotas that leave less than the
    /// request could take otherwise.
    fn allocated(
        &self,
        outcome: Outcome,
        request: &Held<'_>,
        node: &NodeInfo,
        cx: &DraContext<'_>,
    ) -> Result<Vec<AllocationResult>, Rejection> {
        match outcome {
            Outcome::Allocated(results) => Ok(results),
            Outcome::NoFit => {
                let mut rejection = Rejection::unresolvable(PLUGIN, NO_FIT);
                if request.is_limited() {
                    let exceeded = || cx.exceeded(&self.pod, request);
                    let exceeded = match request {
                        // The result is the same for all nodes.
                        Held::Borrowed(_) => self.exceeded.get_or_init(exceeded).clone(),
                        Held::Extended(_) | Held::Both(_) => exceeded(),
                    };
                    rejection
                        .reasons
                        .extend(exceeded.into_iter().map(Cow::Owned));
                }
                Err(rejection)
            }
            Outcome::NodeError(text) => Err(Rejection::unresolvable(PLUGIN, text)),
            Outcome::Error(text) => Err(Rejection::error(PLUGIN, text)),
            Outcome::GaveUp => Err(Rejection::inconclusive(
                PLUGIN,
                format!("node {}: timed out trying to allocate devices", node.name),
            )),
        }
    }
}

/// A request that was prepared before.
pub(super) enum Held<'a> {
    Borrowed(&'a AllocationRequest),
    Extended(Arc<ExtendedResourceRequest>),
    Both(Arc<AllocationRequest>),
}

impl std::ops::Deref for Held<'_> {
    type Target = AllocationRequest;

    fn deref(&self) -> &AllocationRequest {
        match self {
            Held::Borrowed(request) => request,
            Held::Extended(extended) => &extended.request,
            Held::Both(request) => request,
        }
    }
}
