//! Validation of resource quotas.

use std::collections::BTreeSet;

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::{Quantity, names};
use serde_json::Value;

use crate::validate::{IMMUTABLE, entries, internal, list, resources, text};

const STANDARD: [&str; 19] = [
    "configmaps",
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];
/// Resources of which there are only whole ones.
const WHOLE: [&str; 9] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];
/// Compute resources, the only ones that most scopes apply to.
const COMPUTE: [&str; 6] = [
    "cpu",
    "limits.cpu",
    "limits.memory",
    "memory",
    "requests.cpu",
    "requests.memory",
];
/// Scopes that no quota can have together.
const CONTRARY: [[&str; 2]; 2] = [
    ["BestEffort", "NotBestEffort"],
    ["Terminating", "NotTerminating"],
];

/// Checks a quota.
pub(super) fn validate(object: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    amounts(spec, "hard", &path, errors);
    scopes(spec, &path.child("scopes"), errors);
    if spec["scopeSelector"].is_object() {
        let at = path.child("scopeSelector").child("matchExpressions");
        selector(spec, &at, errors);
    }
    validate_status(object, errors);
}

/// Validates the used amounts of a quota.
pub(super) fn validate_status(object: &Value, errors: &mut ErrorList) {
    for key in ["hard", "used"] {
        amounts(&object["status"], key, &Path::new("status"), errors);
    }
}

/// Checks a change of a quota.
pub(super) fn validate_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    validate(object, errors);
    let scopes = |object: &Value| -> BTreeSet<String> {
        let scopes = list(&object["spec"], "scopes").iter();
        scopes
            .filter_map(|it| it.as_str().map(str::to_owned))
            .collect()
    };
    if scopes(object) != scopes(old) {
        let at = Path::new("spec").child("scopes");
        errors.push(Error::invalid(&at, &object["spec"]["scopes"], IMMUTABLE));
    }
}

fn is_standard(name: &str) -> bool {
    let pages = name.strip_prefix("requests.").unwrap_or(name);
    STANDARD.contains(&name) || pages.starts_with("hugepages-")
}

fn is_whole(name: &str) -> bool {
    let extended = name.contains('/')
        && !name.contains("kubernetes.io/")
        && !name.starts_with("requests.")
        && names::qualified_name(&format!("requests.{name}")).is_empty();
    WHOLE.contains(&name) || extended
}

fn amounts(object: &Value, key: &str, path: &Path, errors: &mut ErrorList) {
    for (name, amount) in entries(object, key) {
        let at = path.child(key).key(name);
        resources::standard_name(name, &at, errors);
        if !name.contains('/') && !is_standard(name) {
            let detail = "must be a standard resource for quota";
            errors.push(Error::invalid(&at, name.as_str(), detail));
        }
        let text = amount
            .as_str()
            .map_or_else(|| amount.to_string(), str::to_owned);
        let Ok(amount) = text.parse::<Quantity>() else {
            continue;
        };
        if amount < Quantity::ZERO {
            let detail = "must be greater than or equal to 0";
            errors.push(Error::invalid(&at, text.as_str(), detail));
        }
        if is_whole(name) && amount.milli_value() % 1000 != 0 {
            errors.push(Error::invalid(&at, text.as_str(), "must be an integer"));
        }
    }
}

/// A scope that there is.
fn is_scope(scope: &str) -> bool {
    let others = [
        "CrossNamespacePodAffinity",
        "PriorityClass",
        "VolumeAttributesClass",
    ];
    others.contains(&scope) || CONTRARY.iter().flatten().any(|known| *known == scope)
}

/// Objects of the scope can use the resource.
fn fits(scope: &str, resource: &str) -> bool {
    match scope {
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => {
            matches!(resource, "persistentvolumeclaims" | "requests.storage")
        }
        scope if is_scope(scope) => resource == "pods" || COMPUTE.contains(&resource),
        _ => true,
    }
}

/// How many of the resources that a quota names cannot be counted in a scope.
fn misfits(spec: &Value, scope: &str) -> usize {
    let named = entries(spec, "hard").map(|(name, _)| name.as_str());
    named
        .filter(|name| is_standard(name) && !fits(scope, name))
        .count()
}

fn scopes(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let mut seen = BTreeSet::new();
    for scope in list(spec, "scopes") {
        // Each error shows all scopes.
        if errors.is_full() {
            return;
        }
        let scope = scope.as_str().unwrap_or_default();
        if !is_scope(scope) {
            errors.push(Error::invalid(path, &spec["scopes"], "unsupported scope"));
        }
        for _ in 0..misfits(spec, scope) {
            if errors.is_full() {
                return;
            }
            let detail = "unsupported scope applied to resource";
            errors.push(Error::invalid(path, &spec["scopes"], detail));
        }
        seen.insert(scope);
    }
    contrary(spec, &seen, path, errors);
}

fn contrary(spec: &Value, seen: &BTreeSet<&str>, path: &Path, errors: &mut ErrorList) {
    for pair in CONTRARY {
        if pair.iter().all(|scope| seen.contains(scope)) {
            errors.push(Error::invalid(path, &spec["scopes"], "conflicting scopes"));
        }
    }
}

fn selector(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let mut seen = BTreeSet::new();
    for requirement in list(&spec["scopeSelector"], "matchExpressions") {
        // Each error shows the whole selector.
        if errors.is_full() {
            return;
        }
        let scope = text(requirement, "scopeName");
        if !is_scope(scope) {
            let at = path.child("scopeName");
            errors.push(Error::invalid(&at, scope, "unsupported scope"));
        }
        for _ in 0..misfits(spec, scope) {
            if errors.is_full() {
                return;
            }
            let detail = "unsupported scope applied to resource";
            let selector = &spec["scopeSelector"];
            let shown = internal::shown(
                ("", "v1", "ResourceQuota"),
                &["spec", "scopeSelector"],
                selector,
            );
            errors.push(Error::invalid(path, shown, detail));
        }
        let (operator, at) = (text(requirement, "operator"), path.child("operator"));
        let plain = scope == "CrossNamespacePodAffinity"
            || CONTRARY.iter().flatten().any(|known| *known == scope);
        if plain && operator != "Exists" {
            let detail = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                          ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
                          ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.push(Error::invalid(&at, operator, detail));
        }
        let (values, place) = (list(requirement, "values"), path.child("values"));
        match operator {
            "In" | "NotIn" => {
                if values.is_empty() {
                    let detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                    errors.push(Error::required(&place, detail));
                }
            }
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    let detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                    errors.push(Error::invalid(&place, &requirement["values"], detail));
                }
            }
            other => {
                let detail = "not a valid selector operator";
                errors.push(Error::invalid(&at, other, detail));
            }
        }
        seen.insert(scope);
    }
    contrary(spec, &seen, path, errors);
}
