//! NodePorts.

use super::Plugin;
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::status::Rejection;

/// Rejects nodes on which a host port of the pod is taken.
pub fn filter(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    if pod
        .ports
        .iter()
        .any(|p| node.ports.iter().any(|q| p.conflicts(q)))
    {
        let reason = "node(s) didn't have free ports for the requested pod ports";
        return Err(Rejection::unschedulable(Plugin::NodePorts, reason));
    }
    Ok(())
}
