//! Workloads.

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::names;
use allot_model::features::Features;
use serde_json::Value;

use super::disabled_fields;
use super::validation::{claims, each, immutable, name, policy, preemption, shown, too_many};
use crate::registry::{BASE, Builtin, Rules};
use crate::table::{age, format};
use crate::validate::{IMMUTABLE, list, rule, text};

pub(super) static WORKLOAD: Builtin = Builtin {
    group: "scheduling.k8s.io",
    versions: &["!v1alpha2"],
    kind: "Workload",
    plural: "workloads",
    rules: Rules {
        drop_disabled: Some(disabled_fields::drop_from_workload),
        validate,
        validate_update: Some(validate_update),
        validate_gated: Some(validate_gated),
        validates_metadata_again: false,
        table: Some(("Name|Age", |workload| {
            vec![format::name(workload), age(workload)]
        })),
        ..Rules::DEFAULT
    },
    ..BASE
};

const MAX_TEMPLATES: usize = 8;

/// Checks a new workload.
fn validate(object: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let controller = &spec["controllerRef"];
    if controller.is_object() {
        controller_ref(controller, &path.child("controllerRef"), errors);
    }
    let (templates, at) = templates(spec, &path, errors);
    each(
        templates,
        &at,
        MAX_TEMPLATES,
        errors,
        |template, at, errors| {
            name(template, "name", names::declared_label, at, errors);
            policy(
                &template["schedulingPolicy"],
                &at.child("schedulingPolicy"),
                errors,
            );
            claims(template, at, errors);
        },
    );
}

/// Checks the fields of templates that concern preemption. Templates do not change.
fn validate_gated(_: &Features, object: &Value, old: &Value, errors: &mut ErrorList) {
    let at = Path::new("spec").child("podGroupTemplates");
    let templates = list(&object["spec"], "podGroupTemplates");
    if old.is_null() && templates.len() <= MAX_TEMPLATES {
        for (index, template) in templates.iter().enumerate() {
            preemption(template, &at.index(index), errors);
        }
    }
}

fn templates<'a>(spec: &'a Value, path: &Path, errors: &mut ErrorList) -> (&'a [Value], Path) {
    let (templates, at) = (
        list(spec, "podGroupTemplates"),
        path.child("podGroupTemplates"),
    );
    if templates.is_empty() {
        errors.push(Error::required(&at, ""));
    }
    (templates, at)
}

/// Validates an update of a Workload. Hand-written rules repeat the declared ones, so that errors appear twice.
fn validate_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    let (spec, before, path) = (&object["spec"], &old["spec"], Path::new("spec"));
    let changed = |key: &str| without_nulls(&spec[key]) != without_nulls(&before[key]);
    for key in ["controllerRef", "podGroupTemplates"] {
        if changed(key) {
            let shown = BadValue::raw(shown(&spec[key], true));
            errors.push(Error::invalid(&path.child(key), shown, IMMUTABLE));
        }
    }
    for key in ["controllerRef", "podGroupTemplates"] {
        immutable(changed(key), &path.child(key), errors);
    }
    if changed("podGroupTemplates") {
        let (templates, at) = templates(spec, &path, errors);
        too_many(templates, &at, MAX_TEMPLATES, errors);
    }
}

/// A stored field may be null where a sent object omits it.
fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        Value::Object(members) => members
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key.clone(), without_nulls(value)))
            .collect(),
        other => other.clone(),
    }
}

fn controller_ref(controller: &Value, path: &Path, errors: &mut ErrorList) {
    let group = text(controller, "apiGroup");
    if !group.is_empty() {
        let at = path.child("apiGroup");
        rule(names::declared_subdomain(group), group, &at, errors);
    }
    for key in ["kind", "name"] {
        name(controller, key, names::path_segment_name, path, errors);
    }
}
