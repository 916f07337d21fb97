//! What the validation of workloads and pod groups shares. Upstream declares these rules beside the types: an empty
//! required value is not validated further, and unchanged values are not validated again.

use std::collections::BTreeSet;

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::names;
use allot_apimachinery::quote::go_json;
use serde_json::Value;

use super::disabled_fields::{CLASS, MODE, PRIORITY};
use crate::validate::{IMMUTABLE, list, one_of as one_of_values, rule, text};

pub(super) const MAX_CLAIMS: usize = 4;
/// The highest priority that is not that of a system class.
const HIGHEST_PRIORITY: i64 = 1_000_000_000;

pub(super) fn policy(policy: &Value, path: &Path, errors: &mut ErrorList) {
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

/// Checks the fields of a new pod group or template that concern preemption. Without their feature they are not there.
pub(super) fn preemption(holder: &Value, path: &Path, errors: &mut ErrorList) {
    one_of_values(
        text(holder, MODE),
        &["Pod", "PodGroup"],
        false,
        &path.child(MODE),
        errors,
    );
    let class = text(holder, CLASS);
    if !class.is_empty() {
        rule(
            names::declared_subdomain(class),
            class,
            &path.child(CLASS),
            errors,
        );
    }
    let priority = holder[PRIORITY].as_i64();
    if let Some(priority) = priority.filter(|priority| *priority > HIGHEST_PRIORITY) {
        let detail = format!("must be less than or equal to {HIGHEST_PRIORITY}");
        errors.push(Error::invalid(&path.child(PRIORITY), priority, detail));
    }
}

pub(super) fn claims(holder: &Value, path: &Path, errors: &mut ErrorList) {
    let (claims, at) = (list(holder, "resourceClaims"), path.child("resourceClaims"));
    each(claims, &at, MAX_CLAIMS, errors, |claim, at, errors| {
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        one_of(claim, sources, at, errors);
        name(claim, "name", names::declared_label, at, errors);
        for key in sources {
            claim_name(claim, key, at, errors);
        }
    });
}

pub(super) fn claim_name(holder: &Value, key: &str, path: &Path, errors: &mut ErrorList) {
    if let Some(name) = holder[key].as_str() {
        rule(
            names::declared_subdomain(name),
            name,
            &path.child(key),
            errors,
        );
    }
}

/// Exactly one of the fields must be set.
pub(super) fn one_of(holder: &Value, keys: [&str; 2], path: &Path, errors: &mut ErrorList) {
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

pub(super) fn name(
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

pub(super) fn immutable(changed: bool, path: &Path, errors: &mut ErrorList) {
    if changed {
        errors.push(Error::invalid(path, &Value::Null, IMMUTABLE));
    }
}

pub(super) fn too_many(items: &[Value], path: &Path, max: usize, errors: &mut ErrorList) -> bool {
    let many = items.len() > max;
    if many {
        errors.push(Error::too_many(path, items.len(), max));
    }
    many
}

/// Checks the items of a list whose names are its keys.
pub(super) fn each(
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
pub(super) fn shown(value: &Value, inside: bool) -> String {
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
                    // Upstream's type leaves it out nowhere.
                    (None, "schedulingConstraints") => "null".to_owned(),
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
