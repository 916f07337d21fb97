//! Which nodes get a daemon pod and which pods are deleted.

use std::collections::BTreeMap;
use std::time::Duration;

use allot_apimachinery::well_known;
use allot_model::features::{Feature, Features};
use allot_model::tolerations::has_comparison_operator;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSetSpec;
use k8s_openapi::api::core::v1::{Node, Pod, Toleration};
use serde_json::{Value, json};

use crate::controller::events::Level;
use crate::controller::meta;
use crate::controller::nodes::{affinity_matches, taints, untolerated};
use crate::workload::revision::hash_of;

#[cfg(test)]
mod tests;

/// Whether a node fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// A pod should run there.
    Run,
    /// No new pod, but an existing one may stay (a NoSchedule taint).
    Stay,
    /// No pod may run there.
    No,
    /// The node does not exist.
    NoNode,
}

/// The tolerations that each daemon pod gets: it stays on an unhealthy node.
pub(super) fn tolerations(host_network: bool) -> Vec<Toleration> {
    let network =
        host_network.then_some((well_known::TAINT_NODE_NETWORK_UNAVAILABLE, "NoSchedule"));
    well_known::DAEMON_POD_TOLERATIONS
        .into_iter()
        .chain(network)
        .map(|(key, effect)| Toleration {
            key: Some(key.to_owned()),
            operator: Some("Exists".to_owned()),
            effect: Some(effect.to_owned()),
            ..Default::default()
        })
        .collect()
}

/// Judges a node.
pub(super) fn fit(spec: &DaemonSetSpec, node: &Node, features: &Features) -> Fit {
    let Some(pod) = &spec.template.spec else {
        return Fit::No;
    };
    if pod
        .node_name
        .as_deref()
        .is_some_and(|n| !n.is_empty() && n != meta::name(node))
    {
        return Fit::No;
    }
    if !affinity_matches(pod, node) {
        return Fit::No;
    }
    let mut tolerated = pod.tolerations.clone().unwrap_or_default();
    if !features.enabled(Feature::TaintTolerationComparisonOperators) {
        tolerated.retain(|toleration| !has_comparison_operator(toleration));
    }
    tolerated.extend(tolerations(pod.host_network == Some(true)));
    if untolerated(taints(node), &tolerated, &["NoExecute"]).is_some() {
        return Fit::No;
    }
    if untolerated(taints(node), &tolerated, &["NoSchedule"]).is_some() {
        return Fit::Stay;
    }
    Fit::Run
}

/// The node a daemon pod is on or is meant for.
pub fn target_node(pod: &Pod) -> String {
    let bound = meta::node_name(pod);
    if !bound.is_empty() {
        return bound.to_owned();
    }
    let required = pod
        .spec
        .as_ref()
        .and_then(|s| s.affinity.as_ref())
        .and_then(|a| a.node_affinity.as_ref())
        .and_then(|a| {
            a.required_during_scheduling_ignored_during_execution
                .as_ref()
        });
    let terms = required.iter().flat_map(|r| &r.node_selector_terms);
    let fields = terms.flat_map(|t| t.match_fields.iter().flatten());
    fields
        .filter(|f| f.key == "metadata.name" && f.operator == "In")
        .find_map(|f| f.values.as_ref()?.first().cloned())
        .unwrap_or_default()
}

/// The event about a pod that is deleted because it has ended: level, reason and message.
pub(super) fn ended(pod: &Pod) -> Option<(Level, &'static str, String)> {
    let (level, reason, what, how) = match meta::phase(pod) {
        "Failed" => (Level::Warning, "FailedDaemonPod", "failed", "kill"),
        "Succeeded" => (Level::Normal, "SucceededDaemonPod", "succeeded", "delete"),
        _ => return None,
    };
    let (namespace, name) = (meta::namespace(pod), meta::name(pod));
    let node = meta::node_name(pod);
    Some((
        level,
        reason,
        format!("Found {what} daemon pod {namespace}/{name} on node {node}, will try to {how} it"),
    ))
}

/// A daemon pod, reduced to what the plan depends on.
#[derive(Debug, Clone)]
pub(super) struct DaemonPod {
    name: String,
    created: Option<Timestamp>,
    bound: bool,
    current: bool,
    deleting: bool,
    failed: bool,
    ready: bool,
    available: bool,
    wait: Option<Duration>,
}

impl DaemonPod {
    pub(super) fn new(pod: &Pod, hash: &str, min_ready: i32, now: Timestamp) -> Self {
        let available = meta::is_available(pod, min_ready, now);
        Self {
            name: meta::name(pod).to_owned(),
            created: pod.metadata.creation_timestamp.as_ref().map(|t| t.0),
            bound: !meta::node_name(pod).is_empty(),
            current: hash_of(pod) == hash,
            deleting: meta::deleting(pod),
            failed: meta::is_finished(pod),
            ready: meta::is_ready(pod),
            available: available.is_ok(),
            wait: available.err().flatten(),
        }
    }
}

/// A node with its daemon pods.
#[derive(Debug, Clone)]
pub(super) struct NodeState {
    fit: Fit,
    pub(super) pods: Vec<DaemonPod>,
}

impl NodeState {
    pub(super) fn new(fit: Fit) -> Self {
        Self {
            fit,
            pods: Vec::new(),
        }
    }
}

/// The actions: nodes that get a pod, names of pods to delete.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Actions {
    pub create: Vec<String>,
    pub delete: Vec<String>,
}

/// Decides for all nodes. Rolling updates never take down more pods than allowed at a time.
pub(super) fn actions(spec: &DaemonSetSpec, states: &BTreeMap<String, NodeState>) -> Actions {
    let mut actions = Actions::default();
    let strategy = spec.update_strategy.as_ref();
    let rolling = strategy.and_then(|s| s.type_.as_deref()) != Some("OnDelete");
    let update = strategy.and_then(|s| s.rolling_update.as_ref());
    let desired =
        i32::try_from(states.values().filter(|s| s.fit == Fit::Run).count()).unwrap_or(i32::MAX);
    let surge = meta::scaled(update.and_then(|u| u.max_surge.as_ref()), desired, true, 0);
    let unavailable_limit = meta::scaled(
        update.and_then(|u| u.max_unavailable.as_ref()),
        desired,
        true,
        1,
    );
    let unavailable_limit = if surge == 0 {
        unavailable_limit.max(1)
    } else {
        0
    };

    let mut unavailable = 0;
    let mut surging = 0;
    let mut replaceable: Vec<&DaemonPod> = Vec::new();
    let mut surge_nodes: Vec<&String> = Vec::new();
    for (node, state) in states {
        let live: Vec<&DaemonPod> = state.pods.iter().filter(|p| !p.deleting).collect();
        match state.fit {
            Fit::No => {
                actions.delete.extend(live.iter().map(|p| p.name.clone()));
                continue;
            }
            Fit::NoNode => {
                // Never bound and never will be.
                actions
                    .delete
                    .extend(live.iter().filter(|p| !p.bound).map(|p| p.name.clone()));
                continue;
            }
            Fit::Run | Fit::Stay => {}
        }
        let (failed, mut good): (Vec<&DaemonPod>, Vec<&DaemonPod>) =
            live.iter().partition(|p| p.failed);
        actions.delete.extend(failed.iter().map(|p| p.name.clone()));
        // Of several pods of one generation the oldest stays.
        good.sort_by_key(|p| (p.created, p.name.clone()));
        let mut old = good.iter().filter(|p| !p.current);
        let mut new = good.iter().filter(|p| p.current);
        let (old_pod, new_pod) = (old.next().copied(), new.next().copied());
        actions
            .delete
            .extend(old.chain(new).map(|p| p.name.clone()));
        // A deleted pod that has terminated uses nothing any longer, even if a finalizer keeps it.
        let terminating = state.pods.iter().any(|p| p.deleting && !p.failed);
        match (old_pod, new_pod) {
            (None, None) => {
                unavailable += i32::from(state.fit == Fit::Run);
                // The next pod is created when the last one is deleted, so that host ports and devices are free.
                if state.fit == Fit::Run && failed.is_empty() && !terminating {
                    actions.create.push(node.clone());
                }
            }
            (None, Some(new)) => unavailable += i32::from(!new.available),
            (Some(old), None) => {
                unavailable += i32::from(!old.available);
                if rolling && surge > 0 && old.available {
                    surge_nodes.push(node);
                } else if rolling {
                    replaceable.push(old);
                }
            }
            (Some(old), Some(new)) => {
                // Both only while surging: the old one is deleted when the new one is available.
                if surge == 0 || new.available || !old.available {
                    actions.delete.push(old.name.clone());
                } else {
                    surging += 1;
                }
            }
        }
    }
    if rolling {
        // Unavailable pods are replaced regardless of the limit.
        let (works, broken): (Vec<&DaemonPod>, Vec<&DaemonPod>) =
            replaceable.into_iter().partition(|p| p.available);
        actions.delete.extend(broken.iter().map(|p| p.name.clone()));
        let budget = usize::try_from((unavailable_limit - unavailable).max(0)).unwrap_or(0);
        actions
            .delete
            .extend(works.iter().take(budget).map(|p| p.name.clone()));
        let room = usize::try_from((surge - surging).max(0)).unwrap_or(0);
        actions
            .create
            .extend(surge_nodes.into_iter().take(room).cloned());
    }
    actions
}

/// The status numbers, and when the next ready pod becomes available.
pub(super) fn status(states: &BTreeMap<String, NodeState>) -> (Value, Option<Duration>) {
    let (mut desired, mut current, mut misscheduled) = (0, 0, 0);
    let (mut ready, mut updated, mut available) = (0, 0, 0);
    let mut wait: Option<Duration> = None;
    for state in states.values() {
        // A pod counts until it is deleted; of several the oldest represents the node.
        let there = state.pods.iter().filter(|p| !(p.deleting && p.failed));
        let first = there.min_by_key(|p| (!p.bound, p.created, &p.name));
        if state.fit != Fit::Run {
            misscheduled += i32::from(first.is_some() && state.fit != Fit::NoNode);
            continue;
        }
        desired += 1;
        let Some(pod) = first else {
            continue;
        };
        current += 1;
        ready += i32::from(pod.ready);
        available += i32::from(pod.available);
        updated += i32::from(pod.current);
        if let Some(w) = pod.wait {
            wait = Some(wait.map_or(w, |x| x.min(w)));
        }
    }
    let status = json!({
        "desiredNumberScheduled": desired,
        "currentNumberScheduled": current,
        "numberMisscheduled": misscheduled,
        "numberReady": ready,
        "updatedNumberScheduled": updated,
        "numberAvailable": available,
        "numberUnavailable": desired - available,
    });
    (status, wait)
}
