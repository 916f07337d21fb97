//! The order in which surplus pods are deleted: the least valuable first.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use crate::controller::meta;

/// Sorts the pods of a replica set: not bound before bound, not ready before ready, cheaper to delete first, crowded
/// nodes first, younger first. Crowding counts the pods in `related`, those of all sets of one owner.
pub(crate) fn replicas(pods: &mut [Arc<Pod>], related: &[Arc<Pod>]) {
    let mut per_node: HashMap<&str, usize> = HashMap::new();
    for pod in related.iter().filter(|p| meta::is_active(p)) {
        *per_node.entry(meta::node_name(pod)).or_default() += 1;
    }
    let crowd = |pod: &Pod| per_node.get(meta::node_name(pod)).copied().unwrap_or(0);
    pods.sort_by(|a, b| {
        by_state(a, b)
            .then_with(|| cost(a).cmp(&cost(b)))
            .then_with(|| crowd(b).cmp(&crowd(a)))
            .then_with(|| by_age(a, b))
    });
}

/// Sorts the pods of a job, without regard to deletion cost and nodes.
pub(crate) fn workers(pods: &mut [Arc<Pod>]) {
    pods.sort_by(|a, b| by_state(a, b).then_with(|| by_age(a, b)));
}

fn by_state(a: &Pod, b: &Pod) -> Ordering {
    let phase = |pod: &Pod| match meta::phase(pod) {
        "Pending" | "" => 0,
        "Unknown" => 1,
        _ => 2,
    };
    (!meta::node_name(a).is_empty())
        .cmp(&!meta::node_name(b).is_empty())
        .then_with(|| phase(a).cmp(&phase(b)))
        .then_with(|| meta::is_ready(a).cmp(&meta::is_ready(b)))
}

fn cost(pod: &Pod) -> i32 {
    meta::annotation(pod, "controller.kubernetes.io/pod-deletion-cost")
        .and_then(|c| c.parse().ok())
        .unwrap_or(0)
}

fn by_age(a: &Pod, b: &Pod) -> Ordering {
    let restarts = |pod: &Pod| -> i32 {
        let statuses = pod
            .status
            .iter()
            .flat_map(|s| s.container_statuses.iter().flatten());
        statuses.map(|s| s.restart_count).max().unwrap_or(0)
    };
    let ready_since =
        |pod: &Pod| meta::pod_condition(pod, "Ready").and_then(|c| c.last_transition_time.clone());
    ready_since(b)
        .cmp(&ready_since(a))
        .then_with(|| restarts(b).cmp(&restarts(a)))
        .then_with(|| {
            b.metadata
                .creation_timestamp
                .cmp(&a.metadata.creation_timestamp)
        })
        .then_with(|| a.metadata.name.cmp(&b.metadata.name))
}
