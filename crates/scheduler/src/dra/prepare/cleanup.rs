//! What an attempt can undo that found no node: allocations and reservations that earlier attempts left.

use std::sync::Arc;

use allot_resourceclaim::{consumers, is_for_pod, is_reserved_for};
use k8s_openapi::api::resource::v1::ResourceClaim;

use super::{PodClaim, PodDevices};
use crate::dra::claims::allocation_of;
use crate::node::NodeInfo;
use crate::pod::PodInfo;

/// What to do about the claims of a pod that fits nowhere.
#[derive(Debug, Clone)]
pub enum ClaimCleanup {
    /// Take the allocation away from a claim.
    Deallocate(Arc<ResourceClaim>),
    /// Remove the pod's own reservation, which an earlier attempt left on a claim: while several pods that are on no node
    /// have one, none of them may deallocate the claim. Upstream never resolves that.
    Unreserve(Arc<ResourceClaim>),
    /// Delete an extended resource claim that its pod no longer uses.
    Delete(Arc<ResourceClaim>),
}

impl PodDevices {
    /// A claim to deallocate that no other pod uses: one that is unavailable on nodes that reject the pod for no other
    /// reason (`elsewhere`), on as many of them as possible.
    pub fn claim_to_deallocate(
        &self,
        nodes: &[Arc<NodeInfo>],
        elsewhere: &[&NodeInfo],
    ) -> Option<ClaimCleanup> {
        let misses = |c: &PodClaim| elsewhere.iter().filter(|n| c.is_unavailable(n)).count();
        let claims = self.unused(nodes).rev();
        let worst = claims.map(|c| (misses(c), c)).max_by_key(|(n, _)| *n);
        if let Some((_, claim)) = worst.filter(|(n, _)| *n > 0) {
            return Some(ClaimCleanup::Deallocate(claim.claim.clone()));
        }
        if let Some(claim) = self.reserved_for_pod().find(|c| c.hopeless) {
            return Some(ClaimCleanup::Unreserve(claim.claim.clone()));
        }
        self.extended
            .as_ref()?
            .stale
            .clone()
            .map(ClaimCleanup::Delete)
    }

    /// One claim to release that an earlier attempt allocated or reserved for the pod, which fits nowhere. Without that,
    /// two pods that each hold what the other one needs deadlock, as they do upstream. Claims that were allocated by
    /// others and not reserved stay.
    pub fn claims_to_release(&self, nodes: &[Arc<NodeInfo>]) -> Option<ClaimCleanup> {
        let reserved = |c: &PodClaim| is_reserved_for(&c.claim, &c.consumer.uid);
        // Also if the allocating attempt is not known: no other pod can use the claim.
        let own = |c: &PodClaim| is_for_pod(&self.pod.pod, &c.claim);
        let mut unused = self.unused(nodes);
        let unused = unused.find(|c| c.hopeless || c.left || reserved(c) || own(c));
        let unused = unused.map(|c| ClaimCleanup::Deallocate(c.claim.clone()));
        let left = || {
            let claim = self.reserved_for_pod().next()?;
            Some(ClaimCleanup::Unreserve(claim.claim.clone()))
        };
        unused.or_else(left)
    }

    /// Claims that are allocated and reserved for no consumer, or for this pod alone.
    fn unused(&self, nodes: &[Arc<NodeInfo>]) -> impl DoubleEndedIterator<Item = &PodClaim> {
        // What a group has is in use as soon as one of its pods is on a node.
        let pod = &self.pod;
        let member =
            |p: &Arc<PodInfo>| p.group() == pod.group() && p.key.namespace == pod.key.namespace;
        let alone = pod.group().is_none() || !nodes.iter().flat_map(|n| &n.pods).any(member);
        self.claims.iter().filter(move |c| {
            let unused = match consumers(&c.claim) {
                [] => true,
                [one] => one.uid == *c.consumer.uid && (!c.consumer.is_group() || alone),
                _ => false,
            };
            allocation_of(&c.claim).is_some() && unused
        })
    }

    /// Claims that are reserved for the pod, which is on no node.
    fn reserved_for_pod(&self) -> impl Iterator<Item = &PodClaim> {
        let reserved = |c: &&PodClaim| is_reserved_for(&c.claim, &c.consumer.uid);
        let own = self.claims.iter().filter(|c| !c.consumer.is_group());
        own.filter(reserved)
    }
}
