//! The numbers of a PodDisruptionBudget.

use std::sync::Arc;
use std::time::Duration;

use allot_apimachinery::labels;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::{Map, Value, json};

use crate::controller::clock::{rfc3339, shifted, until};
use crate::controller::meta;
use crate::workload::set_condition;

#[cfg(test)]
mod tests;

/// An eviction that was allowed but did not delete the pod is forgotten after that time.
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_secs(120);

/// Whether the expected number of pods matters, not only the current one.
pub(super) fn needs_scale(spec: &PodDisruptionBudgetSpec) -> bool {
    spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
}

/// The status, and when to check evictions in progress again.
pub(super) fn status(
    budget: &PodDisruptionBudget,
    spec: &PodDisruptionBudgetSpec,
    pods: &[Arc<Pod>],
    expected: i32,
    now: Timestamp,
) -> (Value, Option<Duration>) {
    let old = budget.status.clone().unwrap_or_default();
    let mut disrupted = Map::new();
    let mut again: Option<Duration> = None;
    for (name, at) in old.disrupted_pods.iter().flatten() {
        let Some(pod) = pods.iter().find(|p| meta::name(&***p) == name) else {
            continue;
        };
        let expires = shifted(at.0, DELETION_TIMEOUT);
        if meta::deleting(&**pod) || expires <= now {
            continue;
        }
        let wait = until(now, expires);
        again = Some(again.map_or(wait, |a| a.min(wait)));
        disrupted.insert(name.clone(), json!(rfc3339(at.0)));
    }
    let healthy = pods
        .iter()
        .filter(|p| {
            meta::is_ready(p)
                && !meta::deleting(&***p)
                && !disrupted.contains_key(meta::name(&***p))
        })
        .count();
    let healthy = i32::try_from(healthy).unwrap_or(i32::MAX);
    let desired = match (&spec.max_unavailable, &spec.min_available) {
        (Some(max), _) => (expected - meta::scaled(Some(max), expected, true, 0)).max(0),
        (None, min) => meta::scaled(min.as_ref(), expected, true, 1),
    };
    let allowed = if expected <= 0 {
        0
    } else {
        (healthy - desired).max(0)
    };
    let mut conditions: Vec<Value> = old.conditions.iter().flatten().map(|c| json!(c)).collect();
    let (state, reason) = if allowed > 0 {
        ("True", "SufficientPods")
    } else {
        ("False", "InsufficientPods")
    };
    set_condition(
        &mut conditions,
        "DisruptionAllowed",
        state,
        reason,
        "",
        &rfc3339(now),
    );
    for condition in &mut conditions {
        condition["observedGeneration"] = json!(meta::generation(budget));
    }
    let status = json!({
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "expectedPods": expected,
        "disruptionsAllowed": allowed,
        "disruptedPods": if disrupted.is_empty() { Value::Null } else { json!(disrupted) },
        "conditions": conditions,
    });
    (status, again)
}

/// The status when the numbers cannot be determined.
pub(super) fn failed(budget: &PodDisruptionBudget, why: &str, now: Timestamp) -> Value {
    let old = budget.status.clone().unwrap_or_default();
    let mut conditions: Vec<Value> = old.conditions.iter().flatten().map(|c| json!(c)).collect();
    let stamp = rfc3339(now);
    set_condition(
        &mut conditions,
        "DisruptionAllowed",
        "False",
        "SyncFailed",
        why,
        &stamp,
    );
    for condition in &mut conditions {
        condition["observedGeneration"] = json!(old.observed_generation);
    }
    json!({"disruptionsAllowed": 0, "conditions": conditions})
}

/// The message about pods without a controller.
pub(super) fn unmanaged(spec: &PodDisruptionBudgetSpec) -> String {
    let selector = spec.selector.as_ref().map(go_string).unwrap_or_default();
    format!(
        "Pods selected by this PodDisruptionBudget (selector: {selector}) were found to be unmanaged. As a result, the \
         status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these \
         pods please set \".spec.minAvailable\" field of the PDB to an integer value."
    )
}

/// A selector in Go's format.
fn go_string(selector: &LabelSelector) -> String {
    let matched = selector.match_labels.iter().flatten();
    let matched = matched.map(|(key, value)| (key.as_str(), value.as_str()));
    let requirements = selector.match_expressions.iter().flatten().map(|it| {
        let values = it.values.as_deref().unwrap_or_default().join(" ");
        (it.key.as_str(), it.operator.as_str(), values)
    });
    labels::go_string(matched, requirements)
}
