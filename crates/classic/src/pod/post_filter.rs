//! What follows when no node is feasible for a pod with classic claims (PostFilter).

use std::sync::Arc;

use allot_framework::node::NodeInfo;
use allot_framework::pod::Uid;
use allot_model::classic::objects::{AllocationMode, ResourceClaim, SchedulingSpec};

use super::{PodClaim, PodClaims, State};
use crate::claims::uid_of;
use crate::deferrals::Deferral;
use crate::state::Classic;

/// What to do about an allocated claim because of which a node was rejected.
#[derive(Debug)]
pub enum Deallocation {
    /// Deallocate the claim, after a specification was published.
    Now(Arc<ResourceClaim>, Option<SchedulingSpec>),
    /// Wait until another pod was tried that can use the claim.
    Deferred(Deferral),
}

impl PodClaims {
    /// A claim to deallocate that no other pod uses, if a node was rejected because of a claim (PostFilter); with what
    /// to publish before the deallocation. `attempt` varies the choice. `deferral` says which pod a claim is left to.
    pub fn deallocation(
        &self,
        pod: &Uid,
        rejected: &[&NodeInfo],
        attempt: u32,
        cx: &Classic,
        deferral: impl Fn(&PodClaim) -> Option<Deferral>,
    ) -> Option<Deallocation> {
        let in_the_way = |c: &&PodClaim| {
            let State::Allocated(Some(nodes)) = &c.state else {
                return false;
            };
            let users = &c.claim.status.reserved_for;
            // The driver chose the node of an immediate claim; that is not changed.
            let movable = c.claim.spec.allocation_mode == AllocationMode::WaitForFirstConsumer;
            movable
                && cx.claims.in_flight(uid_of(&c.claim)).is_none()
                && users.iter().all(|u| *u.uid == **pod)
                && rejected.iter().any(|n| !nodes.matches(&n.name, n.labels()))
        };
        let (mut candidates, mut deferred) = (Vec::new(), None);
        for claim in self.claims.iter().filter(in_the_way) {
            match deferral(claim) {
                Some(found) => deferred = deferred.or(Some(found)),
                None => candidates.push(claim),
            }
        }
        let Some(at) = (attempt as usize).checked_rem(candidates.len()) else {
            return deferred.map(Deallocation::Deferred);
        };
        let publish = (!self.spec.selected_node.is_empty()).then(|| self.without_selection());
        Some(Deallocation::Now(candidates[at].claim.clone(), publish))
    }

    /// What to publish when no node is feasible: otherwise drivers go on allocating for the selected node, and
    /// repeatedly take devices or the claim itself from a pod that could use them and then has the claim deallocated.
    pub fn withdrawal(&self) -> Option<SchedulingSpec> {
        let selected = &self.spec.selected_node;
        let may_be_allocated = |claim: &PodClaim| match &claim.state {
            State::Negotiated { unsuitable, .. } => {
                !unsuitable.as_ref().is_some_and(|u| u.contains(selected))
            }
            // As soon as another pod has it deallocated.
            State::Allocated(_) => {
                let claim = &claim.claim;
                let movable = claim.spec.allocation_mode == AllocationMode::WaitForFirstConsumer;
                movable && claim.status.reserved_for.is_empty() && !claim.is_structured()
            }
            State::Structured { .. } => false,
        };
        let useless = !selected.is_empty() && self.claims.iter().any(may_be_allocated);
        useless.then(|| self.without_selection())
    }

    fn without_selection(&self) -> SchedulingSpec {
        SchedulingSpec {
            selected_node: String::new(),
            ..self.spec.clone()
        }
    }
}
