//! Validation of horizontal pod autoscalers.

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::Value;

use super::metrics;
use crate::validate::{kind_and_name, list, not_negative, text};

/// Checks an autoscaler; `old` is the object before an update, or null.
pub(super) fn validate(object: &Value, old: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let least = spec["minReplicas"].as_i64();
    // Zero (HPAScaleToZero) is off by default, and remains valid in an object that has it.
    let had_zero = old["spec"]["minReplicas"] == 0;
    if let Some(least) = least.filter(|least| *least < 1 && !(had_zero && *least == 0)) {
        let detail = "must be greater than or equal to 1";
        errors.push(Error::invalid(&path.child("minReplicas"), least, detail));
    }
    let most = spec["maxReplicas"].as_i64().unwrap_or_default();
    let at = path.child("maxReplicas");
    if most == 0 {
        errors.push(Error::required(&at, "must be set and greater than 0"));
    } else if most < 1 {
        let detail = "must be greater than or equal to 1";
        errors.push(Error::invalid(&at, most, detail));
    }
    if least.is_some_and(|least| most < least) {
        let detail = "must be greater than or equal to `minReplicas`";
        errors.push(Error::invalid(&at, most, detail));
    }
    let (target, at) = (&spec["scaleTargetRef"], path.child("scaleTargetRef"));
    kind_and_name(target, &at, errors);
    let before = &old["spec"]["scaleTargetRef"];
    let same = ["apiVersion", "kind"]
        .iter()
        .all(|key| text(target, key) == text(before, key));
    if !(same && before.is_object()) {
        target_version(target, &at.child("apiVersion"), errors);
    }
    let (all, at) = (list(spec, "metrics"), path.child("metrics"));
    metrics::all(all, &at, errors);
    let says_when = |metric: &Value| matches!(text(metric, "type"), "Object" | "External");
    if least == Some(0) && !all.iter().any(says_when) {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.push(Error::forbidden(&at, detail));
    }
    for direction in ["scaleUp", "scaleDown"] {
        let rules = &spec["behavior"][direction];
        if rules.is_object() {
            metrics::rules(rules, &path.child("behavior").child(direction), errors);
        }
    }
}

/// The target has an API group, except ReplicationControllers, which are in the core group.
fn target_version(target: &Value, path: &Path, errors: &mut ErrorList) {
    let version = text(target, "apiVersion");
    let slashes = version.matches('/').count();
    if slashes > 1 {
        let detail = format!("unexpected GroupVersion string: {version}");
        errors.push(Error::invalid(path, version, detail));
    } else if (slashes == 0 || version.starts_with('/'))
        && text(target, "kind") != "ReplicationController"
    {
        let detail = "apiVersion must specify API group";
        errors.push(Error::invalid(path, version, detail));
    }
}

/// Validates the current and desired replicas of an autoscaler.
pub(super) fn validate_status(object: &Value, errors: &mut ErrorList) {
    let (status, path) = (&object["status"], Path::new("status"));
    for key in ["currentReplicas", "desiredReplicas"] {
        not_negative(&status[key], &path.child(key), errors);
    }
}
