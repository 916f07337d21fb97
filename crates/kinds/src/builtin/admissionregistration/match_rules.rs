//! Which requests policies and webhooks are about.

use std::collections::BTreeSet;

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::Value;

use crate::validate::{list, rule};

/// `matchPolicy`: whether a rule matches other versions of its resources, too.
pub(super) const MATCH_POLICIES: [&str; 2] = ["Equivalent", "Exact"];
const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
const SCOPES: [&str; 3] = ["*", "Cluster", "Namespaced"];

/// A rule of a policy, which may name objects.
pub(super) fn named(value: &Value, path: &Path, errors: &mut ErrorList) {
    let names = list(value, "resourceNames");
    let mut seen = BTreeSet::new();
    for (index, name) in names.iter().enumerate() {
        let at = path.child("resourceNames").index(index);
        let text = name.as_str().unwrap_or_default();
        rule(names::path_segment_name(text), text, &at, errors);
        if !seen.insert(text) {
            errors.push(Error::duplicate(&at, text));
        }
    }
    with_operations(value, path, errors);
}

/// The rules are about these operations only.
pub(super) fn only(
    resources: &Value,
    operations: Option<&[&str]>,
    path: &Path,
    errors: &mut ErrorList,
) {
    let Some(supported) = operations else { return };
    let at = path.child("resourceRules").child("operations");
    for rule in list(resources, "resourceRules") {
        for operation in list(rule, "operations") {
            let name = operation.as_str().unwrap_or_default();
            if !supported.contains(&name) {
                errors.push(Error::not_supported(&at, name, supported));
            }
        }
    }
}

/// A rule: operations on resources.
pub(super) fn with_operations(value: &Value, path: &Path, errors: &mut ErrorList) {
    wildcard_alone(value, "operations", "operations", path, errors);
    for (index, operation) in list(value, "operations").iter().enumerate() {
        let name = operation.as_str().unwrap_or_default();
        if !OPERATIONS.contains(&name) {
            let at = path.child("operations").index(index);
            errors.push(Error::not_supported(&at, name, &OPERATIONS));
        }
    }
    wildcard_alone(value, "apiGroups", "API groups", path, errors);
    wildcard_alone(value, "apiVersions", "API versions", path, errors);
    for (index, version) in list(value, "apiVersions").iter().enumerate() {
        if version == "" {
            errors.push(Error::required(&path.child("apiVersions").index(index), ""));
        }
    }
    resources(value, &path.child("resources"), errors);
    let scope = &value["scope"];
    if let Some(scope) = scope.as_str().filter(|scope| !SCOPES.contains(scope)) {
        errors.push(Error::not_supported(&path.child("scope"), scope, &SCOPES));
    }
}

/// The list must not be empty, and `*` must be its only element.
fn wildcard_alone(value: &Value, key: &str, what: &str, path: &Path, errors: &mut ErrorList) {
    let (items, at) = (list(value, key), path.child(key));
    if items.is_empty() {
        errors.push(Error::required(&at, ""));
    }
    if items.len() > 1 && items.iter().any(|item| item == "*") {
        let detail = format!("if '*' is present, must not specify other {what}");
        errors.push(Error::invalid(&at, &value[key], detail));
    }
}

/// Resources and subresources, which must not overlap.
fn resources(value: &Value, path: &Path, errors: &mut ErrorList) {
    let items = list(value, "resources");
    if items.is_empty() {
        errors.push(Error::required(path, ""));
    }
    let (mut all_of, mut of_all) = (BTreeSet::new(), BTreeSet::new());
    let (mut every, mut any, mut plain) = (false, false, false);
    for (index, item) in items.iter().enumerate() {
        let name = item.as_str().unwrap_or_default();
        let at = path.index(index);
        if name.is_empty() {
            errors.push(Error::required(&at, ""));
            continue;
        }
        every |= name == "*/*";
        any |= name == "*";
        let Some((resource, sub)) = name.split_once('/') else {
            plain = name != "*";
            continue;
        };
        if all_of.contains(resource) {
            let detail = format!("if '{resource}/*' is present, must not specify {name}");
            errors.push(Error::invalid(&at, name, detail));
        }
        if of_all.contains(sub) {
            let detail = format!("if '*/{sub}' is present, must not specify {name}");
            errors.push(Error::invalid(&at, name, detail));
        }
        if sub == "*" {
            all_of.insert(resource);
        }
        if resource == "*" {
            of_all.insert(sub);
        }
    }
    let whole = &value["resources"];
    if items.len() > 1 && every {
        let detail = "if '*/*' is present, must not specify other resources";
        errors.push(Error::invalid(path, whole, detail));
    }
    if any && plain {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.push(Error::invalid(path, whole, detail));
    }
}
