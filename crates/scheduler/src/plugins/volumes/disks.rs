//! VolumeRestrictions: disks that pods name themselves (GCE, AWS, iSCSI, RBD) are used by one pod on a node, or by
//! several that only read.

use crate::framework::Plugin;
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::pod::disks::Disk;
use crate::status::Rejection;

/// Whether two pods cannot be on one node because of a disk.
pub fn conflict(pod: &PodInfo, other: &PodInfo) -> bool {
    let conflicts = |disk: &Disk| other.disks.iter().any(|d| disk.conflicts(d));
    pod.disks.iter().any(conflicts)
}

/// Rejects nodes where another pod uses a disk of the pod.
///
/// # Errors
/// A pod on the node uses one of the pod's disks in a way that excludes others.
pub fn filter(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    if pod.disks.is_empty() || !node.pods.iter().any(|other| conflict(pod, other)) {
        return Ok(());
    }
    let reason = "node(s) had no available disk";
    Err(Rejection::unschedulable(Plugin::VolumeRestrictions, reason))
}

#[cfg(test)]
mod tests;
