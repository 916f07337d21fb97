//! Workloads and pod groups: fields of features that are off.

use allot_model::features::{Feature, Features};
use serde_json::Value;

use crate::object::items_mut;

/// The field of a feature that this server does not support.
const CONSTRAINTS: &str = "schedulingConstraints";

/// The priority class of a pod group, and the priority that follows from it.
pub(super) const CLASS: &str = "priorityClassName";
pub(super) const PRIORITY: &str = "priority";

/// How a pod group is disrupted, and the default of it.
pub(super) const MODE: &str = "disruptionMode";
pub(super) const DEFAULT_MODE: &str = "Pod";

/// Removes fields of features that are off and that the stored workload does not use.
pub(super) fn drop_from_workload(features: &Features, object: &mut Value, old: &Value) {
    const TEMPLATES: &str = "podGroupTemplates";
    let templates = items_mut(object, &["spec", TEMPLATES]);
    for (index, template) in templates.iter_mut().enumerate() {
        drop_from(features, template, &old["spec"][TEMPLATES][index]);
    }
}

/// Removes fields of features that are off and that the stored pod group does not use.
pub(super) fn drop_from_group(features: &Features, object: &mut Value, old: &Value) {
    let claims = features.enabled(Feature::DRAWorkloadResourceClaims);
    let in_use = uses_claims(&old["spec"]);
    if let Some(spec) = object.get_mut("spec") {
        drop_from(features, spec, &old["spec"]);
        // What is stored without a mode is read with the default.
        if let Value::Object(spec) = spec {
            spec.entry(MODE).or_insert_with(|| DEFAULT_MODE.into());
        }
    }
    if let Some(Value::Object(status)) = object.get_mut("status")
        && !claims
        && !in_use
    {
        status.remove("resourceClaimStatuses");
    }
}

fn uses_claims(holder: &Value) -> bool {
    let claims = holder["resourceClaims"].as_array();
    claims.is_some_and(|claims| !claims.is_empty())
}

fn drop_from(features: &Features, holder: &mut Value, old: &Value) {
    let Value::Object(map) = holder else { return };
    let mut off = vec![CONSTRAINTS];
    if !features.has_workload_aware_preemption() {
        off.extend([MODE, CLASS, PRIORITY]);
    }
    for key in off.into_iter().filter(|key| old[*key].is_null()) {
        map.remove(key);
    }
    let claims = features.enabled(Feature::DRAWorkloadResourceClaims);
    if !claims && !uses_claims(old) {
        map.remove("resourceClaims");
    }
}
