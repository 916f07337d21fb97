//! The node that comes nearest to taking a pod, for programs.

use serde::Serialize;

use super::cause::sentence;
use super::groups::{Group, holders, nearest_device, unusable};
use crate::cmd::some;

/// The nearest node, with its reasons.
#[derive(Debug, Serialize)]
pub(super) struct Nearest {
    /// Name of the node: the one that the scheduler's event names.
    node: String,
    /// Why it rejects the pod, in sentences: the plugin's reason first, then claims that are allocated for other nodes, then
    /// for each request what is left, the holders of the devices and the nearest device, then pools that cannot be used.
    reasons: Vec<String>,
}

impl From<&Group<'_>> for Nearest {
    fn from(group: &Group<'_>) -> Self {
        let mut reasons = vec![group.rejected.reason.clone()];
        reasons.extend(group.unavailable.iter().cloned());
        for request in group.failed_requests() {
            reasons.push(sentence(request));
            let held = holders(request);
            if !held.is_empty() {
                reasons.push(format!("in use: {}", some(&held)));
            }
            reasons.extend(nearest_device(request).map(|device| format!("nearest: {device}")));
        }
        let pools = group.explanation.iter().flat_map(|e| &e.unusable_pools);
        reasons.extend(pools.map(unusable));
        let node = group.nodes.first().map(|&node| node.to_owned());
        Self {
            node: node.unwrap_or_default(),
            reasons,
        }
    }
}
