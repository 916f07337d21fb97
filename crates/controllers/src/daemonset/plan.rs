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
    let limits = Limits::new(spec, states);
    let mut plan = Plan::default();
    for (node, state) in states {
        plan.add_node(node, state, &limits);
    }
    plan.roll(&limits)
}

/// The limits of a rolling update.
struct Limits {
    /// Pods of an older generation are replaced.
    rolling: bool,
    /// On how many nodes there may be a pod of each generation (`maxSurge`).
    surge: i32,
    /// How many nodes may be without an available pod (`maxUnavailable`).
    unavailable: i32,
}

impl Limits {
    fn new(spec: &DaemonSetSpec, states: &BTreeMap<String, NodeState>) -> Self {
        let strategy = spec.update_strategy.as_ref();
        let update = strategy.and_then(|s| s.rolling_update.as_ref());
        let desired = states.values().filter(|s| s.fit == Fit::Run).count();
        let desired = i32::try_from(desired).unwrap_or(i32::MAX);
        let scaled = |amount, default| meta::scaled(amount, desired, true, default);
        let surge = scaled(update.and_then(|u| u.max_surge.as_ref()), 0);
        let unavailable = scaled(update.and_then(|u| u.max_unavailable.as_ref()), 1);
        Self {
            rolling: strategy.and_then(|s| s.type_.as_deref()) != Some("OnDelete"),
            surge,
            // Either of the two is zero, and one must allow something.
            unavailable: if surge == 0 { unavailable.max(1) } else { 0 },
        }
    }
}

/// What the nodes so far need, and what a rolling update can choose from.
#[derive(Default)]
struct Plan<'a> {
    actions: Actions,
    /// How many nodes have no available pod.
    unavailable: i32,
    /// How many nodes have a pod of each generation.
    surging: i32,
    /// Pods of an older generation that may be deleted.
    replaceable: Vec<&'a DaemonPod>,
    /// Nodes that may get a second pod.
    surge_nodes: Vec<&'a String>,
}

impl<'a> Plan<'a> {
    fn delete<'p>(&mut self, pods: impl IntoIterator<Item = &'p DaemonPod>) {
        let names = pods.into_iter().map(|pod| pod.name.clone());
        self.actions.delete.extend(names);
    }

    /// Decides what does not depend on other nodes.
    fn add_node(&mut self, node: &'a String, state: &'a NodeState, limits: &Limits) {
        let live = state.pods.iter().filter(|pod| !pod.deleting);
        match state.fit {
            Fit::No => return self.delete(live),
            // They were never bound and never will be.
            Fit::NoNode => return self.delete(live.filter(|pod| !pod.bound)),
            Fit::Run | Fit::Stay => {}
        }
        let (failed, mut good): (Vec<&DaemonPod>, Vec<&DaemonPod>) =
            live.partition(|pod| pod.failed);
        self.delete(failed.iter().copied());
        // Of several pods of one generation the oldest stays.
        good.sort_by_key(|pod| (pod.created, pod.name.clone()));
        let (new, old): (Vec<&DaemonPod>, Vec<&DaemonPod>) =
            good.into_iter().partition(|pod| pod.current);
        let others = old.iter().skip(1).chain(new.iter().skip(1));
        self.delete(others.copied());
        // A deleted pod that has terminated uses nothing any longer, even if a finalizer keeps it.
        let terminating = state.pods.iter().any(|p| p.deleting && !p.failed);
        match (old.first(), new.first()) {
            (None, None) => {
                self.unavailable += i32::from(state.fit == Fit::Run);
                // The next pod is created when the last one is deleted, so that host ports and devices are free.
                if state.fit == Fit::Run && failed.is_empty() && !terminating {
                    self.actions.create.push(node.clone());
                }
            }
            (None, Some(new)) => self.unavailable += i32::from(!new.available),
            (Some(old), None) => {
                self.unavailable += i32::from(!old.available);
                if limits.rolling && limits.surge > 0 && old.available {
                    self.surge_nodes.push(node);
                } else if limits.rolling {
                    self.replaceable.push(old);
                }
            }
            // Both only while surging: the old one is deleted when the new one is available.
            (Some(old), Some(new)) if limits.surge == 0 || new.available || !old.available => {
                self.delete([*old]);
            }
            (Some(_), Some(_)) => self.surging += 1,
        }
    }

    /// Replaces pods of an older generation as far as the limits allow.
    fn roll(mut self, limits: &Limits) -> Actions {
        // Unavailable pods are replaced regardless of the limit.
        let replaceable = std::mem::take(&mut self.replaceable).into_iter();
        let (works, broken): (Vec<&DaemonPod>, Vec<&DaemonPod>) =
            replaceable.partition(|pod| pod.available);
        self.delete(broken);
        let left = |limit: i32, used: i32| usize::try_from((limit - used).max(0)).unwrap_or(0);
        let may_go = left(limits.unavailable, self.unavailable);
        self.delete(works.into_iter().take(may_go));
        let may_surge = left(limits.surge, self.surging);
        let surge_nodes = self.surge_nodes.into_iter().take(may_surge);
        self.actions.create.extend(surge_nodes.cloned());
        self.actions
    }
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
