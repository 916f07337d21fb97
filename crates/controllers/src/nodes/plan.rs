//! Which taints a node should have and when its pods must be evicted.

use allot_apimachinery::well_known::{
    TAINT_NODE_DISK_PRESSURE, TAINT_NODE_MEMORY_PRESSURE, TAINT_NODE_NETWORK_UNAVAILABLE,
    TAINT_NODE_NOT_READY as NOT_READY, TAINT_NODE_PID_PRESSURE,
    TAINT_NODE_UNREACHABLE as UNREACHABLE, TAINT_NODE_UNSCHEDULABLE as UNSCHEDULABLE,
};
use allot_model::features::{Feature, Features};
use allot_model::tolerations::{has_comparison_operator, tolerates};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::ready_condition;

#[cfg(test)]
mod tests;

/// Condition, taint, and the status that means trouble.
const PRESSURE: [(&str, &str); 4] = [
    ("MemoryPressure", TAINT_NODE_MEMORY_PRESSURE),
    ("DiskPressure", TAINT_NODE_DISK_PRESSURE),
    ("PIDPressure", TAINT_NODE_PID_PRESSURE),
    ("NetworkUnavailable", TAINT_NODE_NETWORK_UNAVAILABLE),
];

pub(super) fn has_no_execute(taints: &[Taint]) -> bool {
    taints.iter().any(|t| t.effect == "NoExecute")
}

/// Whether the node's conditions still have to become Unknown.
pub(super) fn needs_unknown(node: &Node) -> bool {
    ready_condition(node).is_none_or(|c| c.status != "Unknown")
}

/// Whether the node's state is unknown. The pods of a node that reports NotReady keep their own status.
pub(super) fn is_lost(node: &Node) -> bool {
    ready_condition(node).is_some_and(|c| c.status == "Unknown")
}

/// The taints that the node should have: those of this controller follow its conditions, others stay.
pub(super) fn taints(node: &Node, silent: bool, now: Timestamp) -> Vec<Taint> {
    let old = crate::controller::nodes::taints(node);
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    if node.spec.as_ref().and_then(|s| s.unschedulable) == Some(true) {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    let status = ready_condition(node).map(|c| c.status.as_str());
    match status {
        Some("False") => wanted.extend([(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]),
        Some("Unknown") => wanted.extend([(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]),
        None if silent => wanted.extend([(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]),
        _ => {}
    }
    let conditions = node
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten());
    for condition in conditions.filter(|c| c.status == "True") {
        if let Some((_, taint)) = PRESSURE.iter().find(|(kind, _)| *kind == condition.type_) {
            wanted.push((taint, "NoSchedule"));
        }
    }
    let ours = |t: &Taint| {
        let effect_is = |e: &str| t.effect == e;
        match t.key.as_str() {
            NOT_READY | UNREACHABLE => effect_is("NoSchedule") || effect_is("NoExecute"),
            UNSCHEDULABLE => effect_is("NoSchedule"),
            key => effect_is("NoSchedule") && PRESSURE.iter().any(|(_, p)| *p == key),
        }
    };
    let mut result: Vec<Taint> = old
        .iter()
        .filter(|t| !ours(t) || wanted.contains(&(t.key.as_str(), t.effect.as_str())))
        .cloned()
        .collect();
    for (key, effect) in wanted {
        if result.iter().all(|t| t.key != key || t.effect != effect) {
            result.push(Taint {
                key: key.to_owned(),
                effect: effect.to_owned(),
                value: None,
                time_added: Some(Time(now)),
            });
        }
    }
    result
}

/// When the pod was bound, if its status has the time.
fn bound(pod: &Pod) -> Option<Timestamp> {
    let mut conditions = pod
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten());
    let scheduled = conditions.find(|c| c.type_ == "PodScheduled" && c.status == "True")?;
    scheduled.last_transition_time.as_ref().map(|t| t.0)
}

/// When the pod must leave the node; `None` if never. Tolerated seconds begin when the taint was added or the pod was
/// bound; for taints without that time, they begin at `since`.
pub(super) fn eviction(
    taints: &[Taint],
    pod: &Pod,
    since: Timestamp,
    features: &Features,
) -> Option<Timestamp> {
    let tolerations = pod
        .spec
        .as_ref()
        .and_then(|s| s.tolerations.as_deref())
        .unwrap_or_default();
    let comparison = features.enabled(Feature::TaintTolerationComparisonOperators);
    let tolerations: Vec<&Toleration> = tolerations
        .iter()
        .filter(|toleration| comparison || !has_comparison_operator(toleration))
        .collect();
    let mut earliest: Option<Timestamp> = None;
    for taint in taints.iter().filter(|t| t.effect == "NoExecute") {
        let used: Vec<_> = tolerations.iter().filter(|t| tolerates(t, taint)).collect();
        let added = taint.time_added.as_ref().map_or(since, |t| t.0);
        let at = if used.is_empty() {
            added.min(since)
        } else {
            // The shortest of the limited ones; without limits the taint does not matter.
            let Some(seconds) = used.iter().filter_map(|t| t.toleration_seconds).min() else {
                continue;
            };
            bound(pod)
                .map_or(added, |bound| bound.max(added))
                .checked_add(SignedDuration::from_secs(seconds.max(0)))
                .unwrap_or(Timestamp::MAX)
        };
        earliest = Some(earliest.map_or(at, |e| e.min(at)));
    }
    earliest
}
