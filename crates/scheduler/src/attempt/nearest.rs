//! The node that came nearest to being feasible for a pod that fits nowhere, for the event that reports it.

use std::cmp::Reverse;

use allot_allocator::explain::Nearness;

use super::{Attempt, FitError};
use crate::dra::NodeNearness;
use crate::framework::Plugin;
use crate::node::NodeInfo;
use crate::status::{Code, Rejection};

/// Limit of device checks for the explanation in an event. In larger clusters only the first nodes are compared.
pub(crate) const MOST_CHECKS: usize = 50_000;
/// The same for a pod of a gang, which is refused in every round of the search for places.
pub(crate) const MOST_CHECKS_IN_GANG: usize = 2_000;

/// How near a node came to being feasible; the largest is explained. Fields are compared in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// The pod's own node name, selector and affinity allow it: nothing that changes on the node helps otherwise.
    wanted: bool,
    satisfied: usize,
    plugins_failed: Reverse<usize>,
    devices: Nearness,
}

/// Whether the pod's own node name, selector or affinity rejects the node.
fn excludes(rejection: &Rejection) -> bool {
    matches!(rejection.plugin, Plugin::NodeName | Plugin::NodeAffinity)
}

impl Attempt<'_> {
    /// How near a node that rejects the pod came to being feasible; comparable with other nodes of the same attempt.
    pub(crate) fn rank(&self, node: &NodeInfo, rejection: &Rejection) -> Rank {
        let found = self.devices().map(|d| d.nearness(node, &self.dra));
        self.ranked(node, rejection, found.as_ref())
    }

    fn ranked(&self, node: &NodeInfo, rejection: &Rejection, found: Option<&NodeNearness>) -> Rank {
        let lacks_more = found.is_some_and(|found| !found.all);
        let others = match rejection.plugin {
            Plugin::DynamicResources => Vec::new(),
            _ => self.rejections(node),
        };
        let failed = match rejection.plugin {
            Plugin::DynamicResources => 1,
            _ => others.len().max(1) + usize::from(lacks_more),
        };
        let excluded = excludes(rejection) || others.iter().any(excludes);
        let devices = found.map(|found| found.nearness).unwrap_or_default();
        Rank {
            wanted: !excluded,
            satisfied: devices.satisfied,
            plugins_failed: Reverse(failed),
            devices,
        }
    }

    /// A likely correction for a selector that failed on the devices of a node; `None` without a suggestion.
    pub(crate) fn explain_error(&self, unplaced: &FitError) -> Option<String> {
        let failed = |r: &&Rejection| r.code == Code::Error && r.plugin == Plugin::DynamicResources;
        let nodes = unplaced.nodes.iter().zip(&self.snapshot.nodes);
        let mut nodes = nodes.filter_map(|(r, node)| Some((r.as_ref().filter(failed)?, node)));
        let (rejection, node) = nodes.next()?;
        let line = self.devices()?.explain(node, &self.dra)?;
        let (_, hint) = line.split_once(&rejection.message())?;
        let hint = hint.trim_start_matches("; ");
        (!hint.is_empty()).then(|| format!("On node {}: {hint}", node.name))
    }

    /// What the nearest node lacks: of the nodes that the pod allows, the node with the most device requests satisfied;
    /// among those, the one that the fewest plugins reject; among those, the one where the most checks leave enough devices;
    /// among those, the one where the most devices remain, then the first. Checks at most `most` devices. `None` if no node
    /// rejects the pod for lack of devices.
    pub(crate) fn explain_nearest(&self, unplaced: &FitError, most: usize) -> Option<String> {
        let devices = self.devices()?;
        let lacks_devices = |p: Plugin| p == Plugin::DynamicResources;
        let mut rejected = unplaced.nodes.iter().flatten();
        if !rejected.any(|r| lacks_devices(r.plugin)) {
            return None;
        }
        let (mut nearest, mut work): (Option<(Rank, bool, &NodeInfo)>, usize) = (None, 0);
        // A node that lacks devices is one that the pod allows: the excluded ones, which rank lower, are not looked at.
        let nodes = unplaced.nodes.iter().zip(&self.snapshot.nodes);
        let nodes = nodes.filter_map(|(rejection, node)| Some((rejection.as_ref()?, node)));
        for (rejection, node) in nodes.filter(|(rejection, _)| !excludes(rejection)) {
            let found = devices.nearness(node, &self.dra);
            let rank = self.ranked(node, rejection, Some(&found));
            if nearest.as_ref().is_none_or(|(best, ..)| rank > *best) {
                nearest = Some((rank, found.all, node));
            }
            work += found.checks;
            if work > most {
                break;
            }
        }
        let (_, has_all, node) = nearest?;
        let at = self.snapshot.position(&node.name)?;
        let rejection = unplaced.nodes[at].as_ref()?;
        let mut reasons: Vec<String> = Vec::new();
        if !lacks_devices(rejection.plugin) {
            let others = self.rejections(node).into_iter();
            let others = others.filter(|other| other.plugin != rejection.plugin);
            reasons.push(rejection.message());
            reasons.extend(others.map(|other| other.message()));
        }
        match devices.explain(node, &self.dra) {
            Some(line) => reasons.push(line),
            None if reasons.is_empty() => return None,
            // Only other plugins reject the node.
            None if has_all => reasons.push("it has the devices".to_owned()),
            None => {}
        }
        Some(format!(
            "Nearest is node {}: {}.",
            node.name,
            reasons.join("; ")
        ))
    }
}
