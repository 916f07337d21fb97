//! Which pods of a stateful set are created and deleted, in which order.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSetSpec;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

#[cfg(test)]
mod tests;

/// A pod of the set, reduced to what the plan depends on.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub ordinal: i32,
    pub revision: String,
    pub deleting: bool,
    pub finished: bool,
    pub running: bool,
    pub ready: bool,
    pub available: bool,
    pub wait: Option<Duration>,
    pub pod: Arc<Pod>,
}

impl Member {
    fn healthy(&self) -> bool {
        self.running && self.available && !self.deleting
    }
}

/// Settings of the specification.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    pub start: i32,
    pub replicas: i32,
    pub min_ready: i32,
    ordered: bool,
    rolling: bool,
    partition: Option<i32>,
    current: String,
    update: String,
}

impl Rules {
    /// `current` and `update` are the hashes of the two revisions.
    pub(super) fn new(spec: &StatefulSetSpec, current: &str, update: &str) -> Self {
        let strategy = spec.update_strategy.as_ref();
        let rolling = strategy.and_then(|s| s.rolling_update.as_ref());
        let replicas = spec.replicas.unwrap_or(1);
        Self {
            start: spec.ordinals.as_ref().and_then(|o| o.start).unwrap_or(0),
            replicas,
            min_ready: spec.min_ready_seconds.unwrap_or(0),
            ordered: spec.pod_management_policy.as_deref() != Some("Parallel"),
            rolling: strategy.and_then(|s| s.type_.as_deref()) != Some("OnDelete"),
            partition: rolling.and_then(|r| r.partition),
            current: current.to_owned(),
            update: update.to_owned(),
        }
    }

    /// Whether the set should have a pod with that ordinal.
    pub(super) fn wants(&self, ordinal: i32) -> bool {
        (self.start..self.start.saturating_add(self.replicas)).contains(&ordinal)
    }

    fn first_updated(&self) -> i32 {
        self.start.saturating_add(self.partition.unwrap_or(0))
    }
}

/// A write that the plan decides on.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Creates a pod of the update revision, or of the current one.
    Create { ordinal: i32, updated: bool },
    /// Deletes a pod.
    Delete(i32),
}

/// The actions that are possible now. Ordered sets take one at a time and wait for each pod.
pub(super) fn actions(rules: &Rules, members: &[Member]) -> Vec<Action> {
    let mut actions = Vec::new();
    let find = |ordinal: i32| members.iter().find(|m| m.ordinal == ordinal);
    // Pods below this count are still to be of the current revision.
    let old = members
        .iter()
        .filter(|m| m.revision == rules.current && rules.wants(m.ordinal))
        .count();
    let keeps_current = |ordinal: i32| {
        rules.current != rules.update
            && match rules.partition {
                Some(_) => ordinal < rules.first_updated(),
                None if rules.rolling => {
                    ordinal
                        < rules
                            .start
                            .saturating_add(i32::try_from(old).unwrap_or(i32::MAX))
                }
                None => false,
            }
    };
    for ordinal in rules.start..rules.start.saturating_add(rules.replicas) {
        let step = match find(ordinal) {
            None => Some(Action::Create {
                ordinal,
                updated: !keeps_current(ordinal),
            }),
            Some(member) if member.finished && !member.deleting => Some(Action::Delete(ordinal)),
            Some(_) => None,
        };
        let acted = step.is_some();
        actions.extend(step);
        if rules.ordered && (acted || find(ordinal).is_some_and(|m| !m.healthy())) {
            return actions;
        }
    }
    // An ordered set gets here when all remaining pods are available.
    let surplus = || members.iter().filter(|m| !rules.wants(m.ordinal));
    let first_broken = surplus().find(|m| !m.healthy()).map(|m| m.ordinal);
    for member in surplus().rev() {
        if member.deleting {
            if rules.ordered {
                return actions;
            }
            continue;
        }
        // Of several unavailable pods only the first may be deleted; the others must become available first.
        if rules.ordered && !member.available && first_broken != Some(member.ordinal) {
            return actions;
        }
        actions.push(Action::Delete(member.ordinal));
        if rules.ordered {
            return actions;
        }
    }
    if !rules.rolling || !actions.is_empty() {
        return actions;
    }
    // One pod at a time, whether the pods may start together or not. An unavailable pod of an old revision is no reason
    // to wait: the update may repair it.
    let candidates = members
        .iter()
        .rev()
        .filter(|m| rules.wants(m.ordinal) && m.ordinal >= rules.first_updated());
    for member in candidates {
        if member.revision != rules.update && !member.deleting {
            actions.push(Action::Delete(member.ordinal));
            break;
        }
        if !member.healthy() {
            break;
        }
    }
    actions
}

/// Whether all pods are of the update revision and work.
pub(super) fn is_complete(rules: &Rules, members: &[Member]) -> bool {
    let wanted: Vec<&Member> = members.iter().filter(|m| rules.wants(m.ordinal)).collect();
    rules.rolling
        && i32::try_from(wanted.len()) == Ok(rules.replicas)
        && wanted
            .iter()
            .all(|m| m.revision == rules.update && m.ready && !m.deleting)
}

/// The status numbers. A pod counts until it is deleted, also one that has terminated.
pub(super) fn status(rules: &Rules, members: &[Member]) -> Value {
    let count = |f: &dyn Fn(&Member) -> bool| members.iter().filter(|m| f(m)).count();
    json!({
        "replicas": count(&|_| true),
        "readyReplicas": count(&|m| m.ready),
        "availableReplicas": count(&|m| m.available),
        "currentReplicas": count(&|m| m.revision == rules.current && !m.deleting),
        "updatedReplicas": count(&|m| m.revision == rules.update && !m.deleting),
    })
}
