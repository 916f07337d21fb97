//! Workloads and pod groups: fields of features that are off.

use allot_model::features::{Feature, Features};
use serde_json::Value;

use crate::object::items_mut;

/// Fields of features that this server does not support.
const NEVER: [&str; 4] = [
    "schedulingConstraints",
    MODE,
    "priorityClassName",
    "priority",
];

/// How a pod group is disrupted, and the default of it.
pub(super) const MODE: &str = "disruptionMode";
pub(super) const DEFAULT_MODE: &str = "Pod";

/// Removes fields of features that are off and that the stored workload does not use.
pub(super) fn drop_from_workload(features: &Features, object: &mut Value, old: &Value) {
    let claims = features.enabled(Feature::DRAWorkloadResourceClaims);
    const TEMPLATES: &str = "podGroupTemplates";
    let templates = items_mut(object, &["spec", TEMPLATES]);
    for (index, template) in templates.iter_mut().enumerate() {
        drop_from(template, &old["spec"][TEMPLATES][index], claims);
    }
}

/// Removes fields of features that are off and that the stored pod group does not use.
pub(super) fn drop_from_group(features: &Features, object: &mut Value, old: &Value) {
    let claims = features.enabled(Feature::DRAWorkloadResourceClaims);
    let in_use = uses_claims(&old["spec"]);
    if let Some(spec) = object.get_mut("spec") {
        drop_from(spec, &old["spec"], claims);
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

fn drop_from(holder: &mut Value, old: &Value, claims: bool) {
    let Value::Object(map) = holder else { return };
    for key in NEVER.into_iter().filter(|key| old[*key].is_null()) {
        map.remove(key);
    }
    if !claims && !uses_claims(old) {
        map.remove("resourceClaims");
    }
}
