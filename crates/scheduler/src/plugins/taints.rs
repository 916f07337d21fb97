//! TaintToleration.

use allot_model::tolerations::tolerates;
use k8s_openapi::api::core::v1::{Taint, Toleration};

use super::Plugin;
use crate::node::NodeInfo;
use crate::status::Rejection;

/// Rejects nodes with a NoSchedule or NoExecute taint that is not tolerated.
pub fn filter(tolerations: &[Toleration], node: &NodeInfo) -> Result<(), Rejection> {
    match untolerated(tolerations, node.taints()) {
        None => Ok(()),
        Some(_) => Err(Rejection::unresolvable(
            Plugin::TaintToleration,
            "node(s) had untolerated taint(s)",
        )),
    }
}

/// The first NoSchedule or NoExecute taint that is not tolerated.
pub fn untolerated<'a>(tolerations: &[Toleration], taints: &'a [Taint]) -> Option<&'a Taint> {
    let blocks = |t: &&Taint| matches!(t.effect.as_str(), "NoSchedule" | "NoExecute");
    let tolerated = |taint: &Taint| tolerations.iter().any(|t| tolerates(t, taint));
    taints.iter().filter(blocks).find(|taint| !tolerated(taint))
}

/// Number of PreferNoSchedule taints that are not tolerated; fewer is better.
pub fn score(tolerations: &[Toleration], node: &NodeInfo) -> i64 {
    let soft = |t: &Toleration| {
        t.effect
            .as_deref()
            .is_none_or(|e| e.is_empty() || e == "PreferNoSchedule")
    };
    let untolerated = node
        .taints()
        .iter()
        .filter(|t| t.effect == "PreferNoSchedule")
        .filter(|taint| !tolerations.iter().any(|t| soft(t) && tolerates(t, taint)))
        .count();
    i64::try_from(untolerated).unwrap_or(i64::MAX)
}
