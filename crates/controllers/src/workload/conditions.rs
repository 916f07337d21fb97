//! Conditions of objects, as JSON.

use allot_apimachinery::conditions;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use crate::controller::clock::rfc3339;
use crate::controller::whole::Whole;

/// Sets a condition of five fields; see [`conditions::set_condition`].
pub(crate) fn set_condition(
    conditions: &mut Vec<Value>,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: &str,
) {
    let condition = json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": now,
    });
    conditions::set_condition(conditions, condition);
}

/// Removes all conditions of this type.
pub(crate) fn remove_condition(conditions: &mut Vec<Value>, kind: &str) {
    conditions.retain(|c| c["type"] != kind);
}

/// A condition's status; empty if there is none.
pub(crate) fn condition_status<'a>(conditions: &'a [Value], kind: &str) -> &'a str {
    conditions
        .iter()
        .find(|c| c["type"] == kind)
        .and_then(|c| c["status"].as_str())
        .unwrap_or_default()
}

/// The conditions of a pod that is about to be deleted, so that its owner sees why. `generation` is that of the pod,
/// for the controllers that upstream has write it.
pub(crate) fn disruption_target(
    pod: &Whole<Pod>,
    reason: &str,
    message: &str,
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Value> {
    const KIND: &str = "DisruptionTarget";
    let conditions = pod.at("/status/conditions").as_array();
    let mut conditions = conditions.cloned().unwrap_or_default();
    set_condition(
        &mut conditions,
        KIND,
        "True",
        reason,
        message,
        &rfc3339(now),
    );
    if let Some(generation) = generation {
        for condition in conditions.iter_mut().filter(|c| c["type"] == KIND) {
            condition["observedGeneration"] = json!(generation);
        }
    }
    conditions
}
