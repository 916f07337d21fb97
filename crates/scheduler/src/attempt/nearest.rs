//! The node that came nearest to taking a pod that fits nowhere, for the event that tells why it does not.

use std::cmp::Reverse;

use allot_allocator::explain::Nearness;

use super::{Attempt, Unplaced};
use crate::framework::Plugin;
use crate::node::NodeInfo;

/// How many checks of devices an event is worth. In clusters where that is not enough for all nodes, the first ones are
/// compared.
pub(crate) const MOST_CHECKS: usize = 50_000;
/// The same for a pod of a gang, which is refused in every round of the search for places.
pub(crate) const MOST_CHECKS_IN_GANG: usize = 2_000;

/// How near a node came; the largest is explained. What counts first comes first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    satisfied: usize,
    plugins_failed: Reverse<usize>,
    devices: Nearness,
}

impl Attempt<'_> {
    /// What the node that came nearest to taking the pod lacks: the one with the most requests for devices satisfied; of
    /// those, the one that the fewest plugins reject; of those, the one where the most checks leave enough devices; of
    /// those, the first. At most so many devices are checked. `None` for pods that no node lacks devices for.
    pub(crate) fn explain_nearest(&self, unplaced: &Unplaced, most: usize) -> Option<String> {
        let devices = self.devices()?;
        let lacks_devices = |p: Plugin| p == Plugin::DynamicResources;
        let mut rejected = unplaced.nodes.iter().flatten();
        if !rejected.any(|r| lacks_devices(r.plugin)) {
            return None;
        }
        let (mut nearest, mut work): (Option<(Rank, bool, &NodeInfo)>, usize) = (None, 0);
        for (rejection, node) in unplaced.nodes.iter().zip(&self.snapshot.nodes) {
            let Some(rejection) = rejection else { continue };
            let found = devices.nearness(node, &self.dra);
            let failed = match lacks_devices(rejection.plugin) {
                true => 1,
                false => self.rejections(node).len().max(1) + usize::from(!found.all),
            };
            let rank = Rank {
                satisfied: found.nearness.satisfied,
                plugins_failed: Reverse(failed),
                devices: found.nearness,
            };
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
            // Only other plugins are in the way.
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
