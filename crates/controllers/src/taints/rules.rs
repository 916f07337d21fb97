//! The condition EvictionInProgress of a DeviceTaintRule, in upstream's words.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Value, json};

use super::Rule;
use crate::controller::clock::rfc3339;

pub(super) const CONDITION: &str = "EvictionInProgress";

/// What a rule with effect None would do.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Simulated {
    pub published: usize,
    pub allocated: usize,
    pub pods: usize,
    pub namespaces: usize,
}

/// Status, reason and message.
pub(super) type ConditionFields = (&'static str, &'static str, String);

fn count(n: usize, one: &str, many: &str) -> String {
    if n == 1 {
        format!("1 {one}")
    } else {
        format!("{n} {many}")
    }
}

fn in_namespaces(n: usize) -> String {
    count(n, "namespace", "different namespaces")
}

fn with_evicted(message: String, evicted: usize) -> String {
    if evicted == 0 {
        return message;
    }
    let suffix = format!(
        "{} evicted since starting the controller.",
        count(evicted, "pod", "pods")
    );
    if message.is_empty() {
        suffix
    } else {
        format!("{message} {suffix}")
    }
}

/// The condition of a rule with effect NoExecute.
pub(super) fn no_execute(pending: usize, namespaces: usize, evicted: usize) -> ConditionFields {
    if pending > 0 {
        let message = format!(
            "{} to be evicted in {}.",
            count(pending, "pod needs", "pods need"),
            in_namespaces(namespaces)
        );
        return (
            "True",
            "PodsPendingEviction",
            with_evicted(message, evicted),
        );
    }
    let reason = if evicted > 0 {
        "Completed"
    } else {
        "NotStarted"
    };
    ("False", reason, with_evicted(String::new(), evicted))
}

/// The condition of a rule with effect None.
pub(super) fn no_effect(found: &Simulated, evicted: usize) -> ConditionFields {
    let message = format!(
        "{} selected. {} selected. {} would be evicted in {} if the effect was NoExecute. \
         This information will not be updated again. Recreate the DeviceTaintRule to trigger an update.",
        count(found.published, "published device", "published devices"),
        count(found.allocated, "allocated device", "allocated devices"),
        count(found.pods, "pod", "pods"),
        in_namespaces(found.namespaces),
    );
    ("False", "NoEffect", with_evicted(message, evicted))
}

/// The condition of a rule with another effect.
pub(super) fn other_effect(evicted: usize) -> ConditionFields {
    let message = "Eviction only happens for the NoExecute effect.".to_owned();
    ("False", "OtherEffect", with_evicted(message, evicted))
}

/// The condition in the rule's status, if it has been written.
pub(super) fn condition(rule: &Rule) -> Option<&Condition> {
    let conditions = rule.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|c| c.type_ == CONDITION)
}

/// The condition as it should be; `None` if it is so already.
pub(super) fn changed(
    rule: &Rule,
    old: Option<&Condition>,
    new: &ConditionFields,
    now: Timestamp,
) -> Option<Value> {
    let (status, reason, message) = new;
    let generation = rule.metadata.generation;
    let same = old.is_some_and(|c| {
        c.status == *status
            && c.reason == *reason
            && c.message == *message
            && c.observed_generation == generation
    });
    (!same).then(|| {
        json!({
            "type": CONDITION,
            "status": status,
            "reason": reason,
            "message": message,
            "observedGeneration": generation,
            // Any change counts, so that users see when the numbers are from.
            "lastTransitionTime": rfc3339(now),
        })
    })
}
