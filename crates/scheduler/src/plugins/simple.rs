//! NodeName and NodeUnschedulable.

use allot_apimachinery::well_known::TAINT_NODE_UNSCHEDULABLE;
use allot_model::tolerations::tolerates;
use k8s_openapi::api::core::v1::{Taint, Toleration};

use super::Plugin;
use crate::node::NodeInfo;
use crate::pod::PodInfo;
use crate::status::Rejection;

/// Rejects every node but the one that the pod names.
pub fn node_name(pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
    match pod.node_name() {
        Some(name) if name != &*node.name => Err(Rejection::unresolvable(
            Plugin::NodeName,
            "node(s) didn't match the requested node name",
        )),
        _ => Ok(()),
    }
}

/// Rejects cordoned nodes, unless the pod tolerates the taint that cordoning implies.
pub fn unschedulable(tolerations: &[Toleration], node: &NodeInfo) -> Result<(), Rejection> {
    if !node.is_unschedulable() {
        return Ok(());
    }
    let implied = Taint {
        key: TAINT_NODE_UNSCHEDULABLE.to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    if tolerations.iter().any(|t| tolerates(t, &implied)) {
        return Ok(());
    }
    Err(Rejection::unresolvable(
        Plugin::NodeUnschedulable,
        "node(s) were unschedulable",
    ))
}
