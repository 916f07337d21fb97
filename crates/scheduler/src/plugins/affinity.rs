//! NodeAffinity and node selectors.

use super::Plugin;
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::selectors::{LabelMap, NodeTerm, Nodes};
use crate::status::Rejection;

/// Node selector and node affinity of a pod.
#[derive(Debug, Default)]
pub struct NodeAffinity {
    selector: Option<LabelMap>,
    required: Option<Nodes>,
    preferred: Vec<(i64, NodeTerm)>,
}

/// Node affinity of a profile, which applies to all its pods in addition to their own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AddedAffinity {
    /// The node selector and the required terms; `None` if the pod has none.
    pub required: Option<Nodes>,
    /// The preferred terms with their weights.
    pub preferred: Vec<(i64, NodeTerm)>,
}

/// Sum of the weights of the preferences that a node satisfies.
fn sum(preferred: &[(i64, NodeTerm)], node: &NodeInfo) -> i64 {
    preferred
        .iter()
        .filter(|(_, t)| t.matches(&node.name, node.labels()))
        .map(|(w, _)| w)
        .sum()
}

impl AddedAffinity {
    /// Rejects nodes without what the profile requires.
    pub fn filter(&self, node: &NodeInfo) -> Result<(), Rejection> {
        match &self.required {
            Some(nodes) if !nodes.matches(&node.name, node.labels()) => {
                Err(Rejection::unresolvable(
                    Plugin::NodeAffinity,
                    "node(s) didn't match scheduler-enforced node affinity",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Whether nodes differ in score.
    pub fn has_preferences(&self) -> bool {
        !self.preferred.is_empty()
    }

    /// Sum of the weights of the preferences that a node satisfies.
    pub fn score(&self, node: &NodeInfo) -> i64 {
        sum(&self.preferred, node)
    }
}

impl NodeAffinity {
    /// Compiles the node selector and the node affinity of a pod.
    pub fn new(pod: &PodInfo) -> Self {
        let spec = pod.spec();
        let affinity = spec
            .affinity
            .as_ref()
            .and_then(|a| a.node_affinity.as_ref());
        Self {
            selector: spec.node_selector.clone().filter(|s| !s.is_empty()),
            required: affinity
                .and_then(|a| {
                    a.required_during_scheduling_ignored_during_execution
                        .as_ref()
                })
                .map(Nodes::new),
            preferred: affinity
                .and_then(|a| {
                    a.preferred_during_scheduling_ignored_during_execution
                        .as_ref()
                })
                .into_iter()
                .flatten()
                .map(|p| (i64::from(p.weight), NodeTerm::new(&p.preference)))
                .collect(),
        }
    }

    /// Rejects the pod on all nodes if every term of its required node affinity is restricted by names of which no node has
    /// all (PreFilter).
    pub fn check(&self) -> Result<(), Rejection> {
        match self.names() {
            Some(names) if names.is_empty() => Err(Rejection::unresolvable(
                Plugin::NodeAffinity,
                "pod affinity terms conflict",
            )),
            _ => Ok(()),
        }
    }

    /// The only nodes that can match, when the pod names them (as DaemonSet pods do).
    pub fn names(&self) -> Option<Vec<&str>> {
        self.required.as_ref()?.names()
    }

    /// Whether a node matches the pod's required affinity. Spread constraints use it to select the
    /// nodes that count.
    pub fn matches(&self, node: &NodeInfo) -> bool {
        let labels = node.labels();
        self.selector
            .iter()
            .flatten()
            .all(|(k, v)| labels.get(k) == Some(v))
            && self
                .required
                .as_ref()
                .is_none_or(|r| r.matches(&node.name, labels))
    }

    /// Rejects nodes without what the pod requires.
    pub fn filter(&self, node: &NodeInfo) -> Result<(), Rejection> {
        if self.matches(node) {
            return Ok(());
        }
        Err(Rejection::unresolvable(
            Plugin::NodeAffinity,
            "node(s) didn't match Pod's node affinity/selector",
        ))
    }

    /// Whether nodes differ in score.
    pub fn has_preferences(&self) -> bool {
        !self.preferred.is_empty()
    }

    /// Sum of the weights of the preferences that a node satisfies.
    pub fn score(&self, node: &NodeInfo) -> i64 {
        sum(&self.preferred, node)
    }
}
