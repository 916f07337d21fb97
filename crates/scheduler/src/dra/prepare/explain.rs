//! Why there are no devices for a pod on a node.

use allot_allocator::explain::{Explanation, Nearness};

use super::{DraContext, PodClaim, PodDevices, requests_of};
use crate::node::NodeInfo;
use crate::selectors::Nodes;

/// Limit of decisions for the explanation in an event, since other pods wait: it reports what is known by then.
const EXPLAIN_STEPS: u64 = 1000;

/// How near a node comes to satisfying a pod's device requests.
#[derive(Debug, Clone, Copy)]
pub struct NodeNearness {
    /// The requests of all claims of the pod, those with an allocation that can be used there included.
    pub nearness: Nearness,
    /// Every request on its own is satisfied.
    pub all: bool,
    /// How many checks of devices it took to find out.
    pub checks: usize,
}

impl PodDevices {
    /// How near a node comes to satisfying the pod's device requests.
    pub fn nearness(&self, node: &NodeInfo, cx: &DraContext<'_>) -> NodeNearness {
        let (mut nearness, mut all, mut checks) = (Nearness::default(), true, 1);
        for claim in self.claims.iter().filter(|c| c.allocation.is_some()) {
            match claim.is_unavailable(node) {
                true => all = false,
                false => nearness.satisfied += requests_of(&claim.claim).len(),
            }
        }
        let extended = match &self.extended {
            None => None,
            Some(extended) => match extended.on_node(node, cx) {
                Ok(Some(request)) => Some(request),
                Ok(None) => {
                    nearness.satisfied += extended.resources.len();
                    None
                }
                Err(_) => {
                    all = false;
                    None
                }
            },
        };
        if let Some(request) = self.request_with(extended.as_ref(), cx) {
            let (found, work) = cx.allocator.nearness(cx.claims.cluster(), &request, node);
            all &= found.satisfied == request.requests();
            checks += work;
            nearness.satisfied += found.satisfied;
            nearness.checks = found.checks;
            nearness.devices = found.devices;
        }
        NodeNearness {
            nearness,
            all,
            checks,
        }
    }

    /// Why the claims cannot be used or allocated on a node, in one line, as far as that can be determined with little work.
    /// `None` if they can.
    pub fn explain(&self, node: &NodeInfo, cx: &DraContext<'_>) -> Option<String> {
        let mut reasons = self.unavailable(node);
        let explanation = self.explain_open(node, cx, Some(EXPLAIN_STEPS));
        let explanation = explanation.filter(|e| !e.fits && !e.line.is_empty());
        reasons.extend(explanation.map(|e| e.line));
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    /// Why claims that are allocated cannot be used on a node, one text for each.
    pub fn unavailable(&self, node: &NodeInfo) -> Vec<String> {
        let unavailable = self.claims.iter().filter(|c| c.is_unavailable(node));
        unavailable.map(PodClaim::why_unavailable).collect()
    }

    /// Why the claims cannot be allocated on a node. `None` if a claim that is allocated already cannot be used there. `steps`
    /// limits the decisions of the search; `None` for the usual limit.
    pub fn explanation(
        &self,
        node: &NodeInfo,
        cx: &DraContext<'_>,
        steps: Option<u64>,
    ) -> Option<Explanation> {
        let is_available = !self.claims.iter().any(|c| c.is_unavailable(node));
        is_available
            .then(|| self.explain_open(node, cx, steps))
            .flatten()
    }

    /// What there is on a node for the claims that have no allocation.
    fn explain_open(
        &self,
        node: &NodeInfo,
        cx: &DraContext<'_>,
        steps: Option<u64>,
    ) -> Option<Explanation> {
        let extended = self.extended.as_ref();
        let extended = extended.and_then(|s| s.on_node(node, cx).ok().flatten());
        let request = self.request_with(extended.as_ref(), cx)?;
        Some(
            cx.allocator
                .explain(cx.claims.cluster(), &request, node, steps),
        )
    }
}

impl PodClaim {
    fn why_unavailable(&self) -> String {
        match self.hopeless {
            true => format!("the allocation of claim {} has failed", self.key),
            false => format!(
                "claim {} is allocated on {}, and its devices cannot be used on this node",
                self.key,
                self.usable_nodes()
            ),
        }
    }

    /// The nodes where the allocation of the claim can be used, as a text.
    fn usable_nodes(&self) -> String {
        const SHOWN: usize = 5;
        let names = self.nodes.as_ref().and_then(Nodes::names);
        match names.as_deref() {
            Some([one]) => format!("node {one}"),
            Some(names) if names.len() <= SHOWN => format!("nodes {}", names.join(", ")),
            _ => "other nodes".to_owned(),
        }
    }
}
