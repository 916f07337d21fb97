//! Pod groups.

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::names;
use allot_model::features::Features;
use serde_json::{Value, json};

use super::disabled_fields::{self, CLASS, DEFAULT_MODE, MODE, PRIORITY};
use super::validation::{
    MAX_CLAIMS, claim_name, claims, each, immutable, name, policy, preemption, shown, too_many,
};
use crate::object::meta;
use crate::registry::{ALL_METADATA, BASE, Builtin, Rules, STATUS};
use crate::table::age;
use crate::validate::{IMMUTABLE, list, text};

pub(super) static POD_GROUP: Builtin = Builtin {
    group: "scheduling.k8s.io",
    versions: &["!v1alpha2"],
    kind: "PodGroup",
    plural: "podgroups",
    subresources: &[STATUS],
    rules: Rules {
        drop_disabled: Some(disabled_fields::drop_from_group),
        status_keeps: ALL_METADATA,
        status_ignores_deletion: true,
        status_has_table: false,
        validate,
        validate_update: Some(validate_update),
        validate_status: Some(validate_status),
        validate_gated: Some(validate_gated),
        validates_metadata_again: false,
        table: Some(("Name|Policy|Workload|Status|Age", row)),
        ..Rules::DEFAULT
    },
    ..BASE
};

fn row(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    let policy = match spec["schedulingPolicy"]["gang"].is_object() {
        true => "Gang",
        false => "Basic",
    };
    let workload = match &spec["podGroupTemplateRef"] {
        Value::Null => "<none>",
        template => text(&template["workload"], "workloadName"),
    };
    vec![
        json!(meta(object, "name")),
        json!(policy),
        json!(workload),
        json!(state(&object["status"])),
        age(object),
    ]
}

/// The state of a pod group in one word: the reason of its disruption, or whether it is scheduled.
fn state(status: &Value) -> &str {
    let conditions = list(status, "conditions");
    // Of several conditions of a type the last one counts, as upstream.
    let last = |kind: &str| conditions.iter().rfind(|it| text(it, "type") == kind);
    match (last("DisruptionTarget"), last("PodGroupScheduled")) {
        (Some(disruption), _) => text(disruption, "reason"),
        (None, Some(scheduled)) if text(scheduled, "status") == "True" => "Scheduled",
        (None, Some(_)) => "Unschedulable",
        (None, None) => "Pending",
    }
}

/// Checks a new pod group.
fn validate(object: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let template = &spec["podGroupTemplateRef"];
    if template.is_object() {
        let (at, of) = (path.child("podGroupTemplateRef"), &template["workload"]);
        if of.is_object() {
            let at = at.child("workload");
            name(of, "workloadName", names::declared_subdomain, &at, errors);
            name(
                of,
                "podGroupTemplateName",
                names::declared_label,
                &at,
                errors,
            );
        } else {
            let detail = "must specify one of: `workload`";
            errors.push(Error::invalid(&at, "", detail));
        }
    }
    policy(
        &spec["schedulingPolicy"],
        &path.child("schedulingPolicy"),
        errors,
    );
    claims(spec, &path, errors);
}

/// Checks a change of a pod group.
fn validate_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    let (spec, before, path) = (&object["spec"], &old["spec"], Path::new("spec"));
    let changed = |key: &str| spec[key] != before[key];
    for key in ["podGroupTemplateRef", "schedulingPolicy"] {
        if changed(key) {
            let shown = BadValue::raw(shown(&spec[key], true));
            errors.push(Error::invalid(&path.child(key), shown, IMMUTABLE));
        }
    }
    for key in ["podGroupTemplateRef", "schedulingPolicy", "resourceClaims"] {
        immutable(changed(key), &path.child(key), errors);
    }
    if changed("resourceClaims") {
        let at = path.child("resourceClaims");
        too_many(list(spec, "resourceClaims"), &at, MAX_CLAIMS, errors);
    }
}

/// Checks the fields that concern preemption.
fn validate_gated(features: &Features, object: &Value, old: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    if old.is_null() {
        preemption(spec, &path, errors);
        return;
    }
    let before = &old["spec"];
    let mode = |spec: &Value| spec[MODE].as_str().unwrap_or(DEFAULT_MODE).to_owned();
    let changed = [
        (MODE, mode(spec) != mode(before)),
        (CLASS, text(spec, CLASS) != text(before, CLASS)),
        (PRIORITY, spec[PRIORITY] != before[PRIORITY]),
    ];
    for (key, changed) in changed {
        match features.has_workload_aware_preemption() {
            true => immutable(changed, &path.child(key), errors),
            false if changed => errors.push(Error::forbidden(&path.child(key), "")),
            false => {}
        }
    }
}

/// Checks a change of a pod group's status.
fn validate_status(object: &Value, old: &Value, errors: &mut ErrorList) {
    let (status, path) = (&object["status"], Path::new("status"));
    let conditions = list(status, "conditions");
    let at = path.child("conditions");
    errors.extend(allot_model::validate::conditions(conditions, &at));
    let key = "resourceClaimStatuses";
    if status[key] != old["status"][key] {
        let (statuses, at) = (list(status, key), path.child(key));
        each(statuses, &at, MAX_CLAIMS, errors, |status, at, errors| {
            claim_name(status, "resourceClaimName", at, errors);
        });
    }
}
