//! Nodes as they would be with other pods on them.

use std::sync::Arc;

use super::{Attempt, Others};
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::status::Rejection;

impl Others {
    /// Counts a pod that is added to a node (`delta` 1) or removed from it (-1).
    fn update(&mut self, attempt: &Attempt<'_>, other: &PodInfo, node: &NodeInfo, delta: i64) {
        if let Some(exclusive) = &mut self.exclusive {
            exclusive.update(other, delta);
        }
        if let Some(spread) = &mut self.spread {
            spread.update(attempt.pod, other, node, delta);
        }
        if let Some(interpod) = &mut self.interpod {
            interpod.update(attempt.pod, other, node, attempt.snapshot, delta);
        }
    }
}

/// A node with other pods on it, and what the pods there mean to the pod.
pub(super) struct Changed<'t, 'a> {
    attempt: &'t Attempt<'a>,
    node: NodeInfo,
    others: Others,
}

impl<'t, 'a> Changed<'t, 'a> {
    /// The node as it is, with some pods in addition.
    pub(super) fn with(attempt: &'t Attempt<'a>, node: &NodeInfo, added: &[Arc<PodInfo>]) -> Self {
        let mut changed = Self {
            attempt,
            node: node.clone(),
            others: attempt.others.clone(),
        };
        added.iter().for_each(|pod| changed.add(pod));
        changed
    }

    fn add(&mut self, pod: &Arc<PodInfo>) {
        self.others.update(self.attempt, pod, &self.node, 1);
        self.node.add_pod(pod.clone());
    }

    fn remove(&mut self, pod: &PodInfo) {
        if self.node.remove_pod(&pod.uid).is_some() {
            self.others.update(self.attempt, pod, &self.node, -1);
        }
    }

    /// All filters but DynamicResources.
    pub(super) fn filter(&self) -> Result<(), Rejection> {
        self.attempt.filter_with(&self.node, &self.others)
    }
}

/// A node from which victims are removed, and to which they are added again as long as the pod still fits; for
/// preemption.
///
/// The node is copied once. The state of the plugins is updated pod by pod, so that one more check costs no more than
/// the filters.
pub(crate) struct Trial<'t, 'a> {
    alone: Changed<'t, 'a>,
    /// The same with the pods that are nominated to the node, if there are any.
    expected: Option<Changed<'t, 'a>>,
}

impl<'t, 'a> Trial<'t, 'a> {
    /// The node as it is.
    pub(crate) fn new(
        attempt: &'t Attempt<'a>,
        node: &NodeInfo,
        nominated: &[Arc<PodInfo>],
    ) -> Self {
        let expected = || Changed::with(attempt, node, nominated);
        Self {
            alone: Changed::with(attempt, node, &[]),
            expected: (!nominated.is_empty()).then(expected),
        }
    }

    /// Adds a victim again.
    pub(crate) fn add(&mut self, pod: &Arc<PodInfo>) {
        let both = std::iter::once(&mut self.alone).chain(&mut self.expected);
        both.for_each(|changed| changed.add(pod));
    }

    /// Removes a victim.
    pub(crate) fn remove(&mut self, pod: &PodInfo) {
        let both = std::iter::once(&mut self.alone).chain(&mut self.expected);
        both.for_each(|changed| changed.remove(pod));
    }

    /// Whether the pod fits on the node, without the pods that are nominated to the node and with them.
    ///
    /// # Errors
    /// The first plugin that rejects the node. DynamicResources is left out: removing pods does not free devices.
    pub(crate) fn filter(&self) -> Result<(), Rejection> {
        self.alone.filter()?;
        self.expected.as_ref().map_or(Ok(()), Changed::filter)
    }
}
