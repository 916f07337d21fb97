//! Workloads and PodGroups. Upstream declares these rules beside the types: an empty required value is not validated
//! further, and unchanged values are not validated again.

use std::collections::BTreeSet;

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::names;
use allot_apimachinery::quote::go_json;
use serde_json::Value;

use super::{IMMUTABLE, list, rule, text};

const MAX_TEMPLATES: usize = 8;
const MAX_CLAIMS: usize = 4;

/// Checks a new workload.
pub(crate) fn workload(object: &Value, errors: &mut ErrorList) {
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
            name(template, "name", names::dns1123_label, at, errors);
            policy(
                &template["schedulingPolicy"],
                &at.child("schedulingPolicy"),
                errors,
            );
            claims(template, at, errors);
        },
    );
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
pub(crate) fn workload_update(object: &Value, old: &Value, errors: &mut ErrorList) {
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

/// Checks a new pod group.
pub(crate) fn group(object: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let template = &spec["podGroupTemplateRef"];
    if template.is_object() {
        let (at, of) = (path.child("podGroupTemplateRef"), &template["workload"]);
        if of.is_object() {
            let at = at.child("workload");
            name(of, "workloadName", names::dns1123_subdomain, &at, errors);
            name(
                of,
                "podGroupTemplateName",
                names::dns1123_label,
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
pub(crate) fn group_update(object: &Value, old: &Value, errors: &mut ErrorList) {
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

/// Checks a change of a pod group's status.
pub(crate) fn group_status(object: &Value, old: &Value, errors: &mut ErrorList) {
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

fn controller_ref(controller: &Value, path: &Path, errors: &mut ErrorList) {
    let group = text(controller, "apiGroup");
    if !group.is_empty() {
        let at = path.child("apiGroup");
        rule(names::dns1123_subdomain(group), group, &at, errors);
    }
    for key in ["kind", "name"] {
        name(controller, key, names::path_segment_name, path, errors);
    }
}

fn policy(policy: &Value, path: &Path, errors: &mut ErrorList) {
    one_of(policy, ["basic", "gang"], path, errors);
    let (gang, at) = (&policy["gang"], path.child("gang").child("minCount"));
    match gang["minCount"].as_i64().unwrap_or_default() {
        _ if !gang.is_object() => {}
        0 => errors.push(Error::required(&at, "")),
        count if count < 1 => {
            let detail = "must be greater than or equal to 1";
            errors.push(Error::invalid(&at, count, detail));
        }
        _ => {}
    }
}

fn claims(holder: &Value, path: &Path, errors: &mut ErrorList) {
    let (claims, at) = (list(holder, "resourceClaims"), path.child("resourceClaims"));
    each(claims, &at, MAX_CLAIMS, errors, |claim, at, errors| {
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        one_of(claim, sources, at, errors);
        name(claim, "name", names::dns1123_label, at, errors);
        for key in sources {
            claim_name(claim, key, at, errors);
        }
    });
}

fn claim_name(holder: &Value, key: &str, path: &Path, errors: &mut ErrorList) {
    if let Some(name) = holder[key].as_str() {
        rule(
            names::dns1123_subdomain(name),
            name,
            &path.child(key),
            errors,
        );
    }
}

/// Exactly one of the fields must be set.
fn one_of(holder: &Value, keys: [&str; 2], path: &Path, errors: &mut ErrorList) {
    let all = keys.map(|key| format!("`{key}`")).join(", ");
    let set: Vec<&str> = keys
        .into_iter()
        .filter(|key| !holder[*key].is_null())
        .collect();
    match set.len() {
        0 => {
            let detail = format!("must specify one of: {all}");
            errors.push(Error::invalid(path, "", detail));
        }
        1 => {}
        _ => {
            let detail = format!("must specify exactly one of: {all}");
            let shown = format!("{{{}}}", set.join(", "));
            errors.push(Error::invalid(path, shown, detail));
        }
    }
}

fn name(
    holder: &Value,
    key: &str,
    check: fn(&str) -> Vec<String>,
    path: &Path,
    errors: &mut ErrorList,
) {
    let (name, at) = (text(holder, key), path.child(key));
    if name.is_empty() {
        errors.push(Error::required(&at, ""));
    } else {
        rule(check(name), name, &at, errors);
    }
}

fn immutable(changed: bool, path: &Path, errors: &mut ErrorList) {
    if changed {
        errors.push(Error::invalid(path, &Value::Null, IMMUTABLE));
    }
}

fn too_many(items: &[Value], path: &Path, max: usize, errors: &mut ErrorList) -> bool {
    let many = items.len() > max;
    if many {
        errors.push(Error::too_many(path, items.len(), max));
    }
    many
}

/// Checks the items of a list whose names are its keys.
fn each(
    items: &[Value],
    path: &Path,
    max: usize,
    errors: &mut ErrorList,
    check: impl Fn(&Value, &Path, &mut ErrorList),
) {
    if too_many(items, path, max, errors) {
        return;
    }
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        if !seen.insert(text(item, "name")) {
            let item = BadValue::raw(shown(item, false));
            errors.push(Error::duplicate(&path.index(index), item));
        }
    }
    for (index, item) in items.iter().enumerate() {
        check(item, &path.index(index), errors);
    }
}

/// A value in the order of upstream's types: in the API form, or with all members of the internal types by their Go
/// names.
fn shown(value: &Value, inside: bool) -> String {
    const TYPES: [&[&str]; 7] = [
        &["workloadName", "podGroupTemplateName"],
        &["workload"],
        &["apiGroup", "kind", "name"],
        &["minCount"],
        &["basic", "gang"],
        &["name", "resourceClaimName", "resourceClaimTemplateName"],
        &[
            "name",
            "schedulingPolicy",
            "schedulingConstraints",
            "resourceClaims",
            "disruptionMode",
            "priorityClassName",
            "priority",
        ],
    ];
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| shown(item, inside)).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(map) if !map.is_empty() => {
            let fits = |names: &&&[&str]| map.keys().all(|key| names.contains(&key.as_str()));
            let Some(names) = TYPES.iter().find(fits) else {
                return go_json(value);
            };
            let member = |name: &&str| {
                let key = match *name {
                    "apiGroup" if inside => "APIGroup".to_owned(),
                    name if inside => name[..1].to_ascii_uppercase() + &name[1..],
                    name => name.to_owned(),
                };
                let value = match (map.get(*name), *name) {
                    (Some(value), _) => shown(value, inside),
                    (None, _) if !inside => return None,
                    (None, "priorityClassName" | "apiGroup") => "\"\"".to_owned(),
                    (None, _) => "null".to_owned(),
                };
                Some(format!("\"{key}\":{value}"))
            };
            let members: Vec<String> = names.iter().filter_map(member).collect();
            format!("{{{}}}", members.join(","))
        }
        _ => go_json(value),
    }
}
