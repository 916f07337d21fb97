//! The claims of a pod in an attempt: Filter, PostFilter and Reserve.

use std::sync::Arc;

use allot_framework::claim_plugin::{
    self, Handle, Message, Negotiation, PluginRejection, PostFilter, Queued, Reservation, Shared,
};
use allot_framework::node::NodeInfo;
use allot_framework::pod::PodInfo;
use allot_model::classic::objects::{ResourceClaim, SchedulingSpec};

use crate::deferrals::Deferral;
use crate::message::ClaimTasks;
use crate::pod::{Deallocation, PodClaim, PodClaims};
use crate::state::Classic;

/// Of how many pods that use a claim an attempt checks whether they can be placed where it is allocated.
const MOST_USERS: usize = 64;

/// What an attempt decided for a pod.
#[derive(Debug)]
pub(super) enum Decision {
    /// Publish a specification to the drivers.
    Publish(SchedulingSpec),
    /// Have a claim deallocated, after a specification was published.
    Deallocate(Arc<ResourceClaim>, Option<SchedulingSpec>),
    /// Publish a specification, and leave a claim to another pod.
    Leave(Option<SchedulingSpec>, Deferral),
}

impl Message for Decision {}

/// The claims of a pod with the state that judges nodes for them.
#[derive(Debug)]
pub(super) struct Prepared<'a> {
    pub(super) pod: &'a PodInfo,
    pub(super) claims: PodClaims,
    pub(super) state: &'a Classic,
}

impl claim_plugin::PodClaims for Prepared<'_> {
    fn is_pending(&self) -> bool {
        self.claims.is_pending()
    }

    fn filter(&self, node: &NodeInfo) -> Result<(), PluginRejection> {
        self.claims.filter(node, self.state)
    }

    fn preferred(&self, nodes: &[Arc<NodeInfo>], feasible: &[usize]) -> Option<usize> {
        self.claims.selected_among(nodes, feasible)
    }

    fn negotiate(&self, feasible: &[&str], best: &str, others: bool) -> Negotiation {
        let found = self.claims.negotiate(&self.pod.uid, feasible, best, others);
        Negotiation {
            message: found.message,
            decision: found.publish.map(Decision::Publish).map(Shared::new),
        }
    }

    fn reserve(&self, node: &str) -> Result<Reservation, PluginRejection> {
        let tasks = self.claims.tasks(&self.pod.uid, node, self.state)?;
        Ok(Reservation {
            writes: (!tasks.is_empty()).then(|| Shared::new(ClaimTasks(tasks))),
            claims: self.claims.keys(),
        })
    }

    fn post_filter(
        &self,
        rejected: &[&NodeInfo],
        attempts: u32,
        handle: &dyn Handle,
    ) -> PostFilter {
        let deferral = |claim: &PodClaim| deferral(self.pod, claim, self.state, handle);
        let found =
            self.claims
                .deallocation(&self.pod.uid, rejected, attempts, self.state, deferral);
        let decision = match found {
            Some(Deallocation::Now(claim, publish)) => {
                return PostFilter {
                    deallocates: true,
                    decision: Some(Shared::new(Decision::Deallocate(claim, publish))),
                };
            }
            Some(Deallocation::Deferred(found)) => {
                Some(Decision::Leave(self.claims.withdrawal(), found))
            }
            None => self.claims.withdrawal().map(Decision::Publish),
        };
        PostFilter {
            deallocates: false,
            decision: decision.map(Shared::new),
        }
    }
}

/// Finds another pod that will be tried without a further event and can use a claim where it is allocated.
fn deferral(
    pod: &PodInfo,
    claim: &PodClaim,
    state: &Classic,
    handle: &dyn Handle,
) -> Option<Deferral> {
    let nodes = handle.nodes().iter();
    let nodes = nodes.filter(|node| claim.is_allocated_on(node));
    let nodes: Vec<&NodeInfo> = nodes.map(|node| &**node).collect();
    let can_use = |other: &Queued<'_>| {
        let Ok(Some(claims)) = PodClaims::prepare(other.pod, state) else {
            return false;
        };
        !claims.is_pending() && nodes.iter().any(|n| claims.filter(n, state).is_ok())
    };
    let mut others = handle
        .ready_users_of_claim(claim.key())
        .into_iter()
        .filter(|o| o.pod.uid != pod.uid)
        .filter(|o| !state.deferrals.is_over(claim.key(), &o.pod.uid))
        .take(MOST_USERS);
    let other = others.find(can_use)?;
    tracing::debug!(claim = %claim.key(), pod = %other.pod.key, "leaves the claim to a pod that can use it");
    Some(Deferral {
        claim: claim.key().clone(),
        pod: other.pod.uid.clone(),
        attempts: other.attempts,
    })
}
