//! Answers about nodes for pods that are alike, remembered until the node changes.
//!
//! Most pods come from a few templates, and between two attempts hardly any node changes. So the outcome of the filters
//! that look at nothing but the node, and the node's scores by such plugins, are kept for the signatures of the last
//! pods. What depends on other nodes or on volumes is never kept; the answers of the allocator are kept as it gives them.

use allot_allocator::KnownFit;
use parking_lot::{Mutex, MutexGuard};

use super::Attempt;
use super::score::NodeScorer;
use super::signature::PodSignature;
use crate::node::NodeInfo;
use crate::status::Rejection;

/// Most signatures whose answers are kept.
const SIGNATURES: usize = 8;
/// Most answers that are kept, unless there are more nodes than that.
const ANSWERS: usize = 1 << 18;

/// Scores of a node before they are compared with those of other nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct NodeScores {
    /// The raw score of TaintToleration.
    pub(super) taints: i64,
    /// The raw score of NodeAffinity.
    pub(super) affinity: i64,
    /// The weighted scores of NodeResourcesFit and NodeResourcesBalancedAllocation.
    pub(super) resources: i64,
}

/// What the plugins that look at nothing but the node say about it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct NodeAnswer {
    /// The generation of the node when the result was computed; zero for none.
    generation: u64,
    pub(super) rejection: Option<Box<Rejection>>,
    pub(super) scores: NodeScores,
}

/// The answers for one signature, by position of the node.
#[derive(Debug)]
struct Signed {
    signature: PodSignature,
    nodes: Vec<NodeAnswer>,
    /// What the allocator said last; it sees itself whether that still holds.
    devices: Vec<Option<KnownFit>>,
}

/// What is remembered between attempts. See the module.
#[derive(Debug, Default)]
pub struct NodeMemo(Mutex<Vec<Signed>>);

/// The answers for the pod of an attempt.
pub(super) struct NodeAnswers<'m> {
    /// Those for the signature of the pod are the first.
    last: MutexGuard<'m, Vec<Signed>>,
    scorer: NodeScorer<'m>,
}

impl NodeMemo {
    /// The answers for the pod of an attempt; `None` for a signature that is not one of the last: there may be no other
    /// pod with it.
    pub(super) fn answers_for<'m>(&'m self, attempt: &'m Attempt<'_>) -> Option<NodeAnswers<'m>> {
        if !PodSignature::is_possible(attempt) {
            return None;
        }
        let total = attempt.snapshot.nodes.len();
        let mut last = self.0.lock();
        let known = last.iter().position(|s| s.signature.is_of(attempt));
        let Some(at) = known else {
            last.truncate((ANSWERS / total.max(1)).clamp(1, SIGNATURES) - 1);
            let signed = Signed {
                signature: PodSignature::of(attempt),
                nodes: Vec::new(),
                devices: Vec::new(),
            };
            last.insert(0, signed);
            return None;
        };
        last[..=at].rotate_right(1);
        last[0].nodes.resize_with(total, NodeAnswer::default);
        if attempt.devices.is_some() {
            last[0].devices.resize(total, None);
        }
        let scorer = attempt.node_scorer();
        Some(NodeAnswers { last, scorer })
    }
}

impl NodeAnswers<'_> {
    /// The answer for the node at a position.
    pub(super) fn of(&mut self, at: usize) -> &NodeAnswer {
        let node = &self.scorer.attempt.snapshot.nodes[at];
        let answer = &mut self.last[0].nodes[at];
        if answer.generation != node.generation() {
            *answer = NodeAnswer::new(&self.scorer, node);
        }
        answer
    }

    /// What the allocator said last about the node at a position, for a pod that needs devices.
    pub(super) fn devices(&mut self, at: usize) -> &mut Option<KnownFit> {
        &mut self.last[0].devices[at]
    }
}

impl NodeAnswer {
    fn new(scorer: &NodeScorer<'_>, node: &NodeInfo) -> Self {
        let rejection = scorer.attempt.filter_node(node).err().map(Box::new);
        let scores = match rejection {
            Some(_) => NodeScores::default(),
            None => scorer.scores(node),
        };
        Self {
            generation: node.generation(),
            rejection,
            scores,
        }
    }
}

#[cfg(test)]
mod tests;
