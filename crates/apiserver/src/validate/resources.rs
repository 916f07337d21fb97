//! Resource requests and limits.

use std::cmp::Ordering;

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use allot_apimachinery::quantity::Quantity;
use serde_json::Value;

use super::{entries, rule};

fn quantity(value: &Value) -> Option<Quantity> {
    value.as_str()?.parse().ok()
}

/// A resource of Kubernetes itself.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// A resource that comes in whole pieces.
fn is_integer(name: &str) -> bool {
    const COUNTED: [&str; 9] = [
        "pods",
        "services",
        "resourcequotas",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    ];
    COUNTED.contains(&name) || !is_native(name)
}

fn overcommits(name: &str) -> bool {
    is_native(name) && !name.starts_with("hugepages-")
}

/// Checks the requests and limits of a container.
pub(super) fn container(resources: &Value, path: &Path, errors: &mut ErrorList) {
    let (limits, requests) = (path.child("limits"), path.child("requests"));
    for (name, amount) in entries(resources, "limits") {
        resource_name(name, &limits, errors);
        resource_amount(name, amount, &limits.key(name), errors);
    }
    for (name, amount) in entries(resources, "requests") {
        resource_name(name, &requests, errors);
        resource_amount(name, amount, &requests.key(name), errors);
        let limit = &resources["limits"][name];
        let (Some(wanted), Some(most)) = (quantity(amount), quantity(limit)) else {
            if !overcommits(name) {
                let detail = "Limit must be set for non overcommitable resources";
                errors.push(Error::required(&limits, detail));
            }
            continue;
        };
        if !overcommits(name) && wanted.cmp(&most) != Ordering::Equal {
            let detail = format!("must be equal to {name} limit of {most}");
            errors.push(Error::invalid(&requests, amount, detail));
        } else if wanted.cmp(&most) == Ordering::Greater {
            let detail = format!("must be less than or equal to {name} limit of {most}");
            errors.push(Error::invalid(&requests, amount, detail));
        }
    }
    let named = |want: fn(&str) -> bool| {
        ["limits", "requests"]
            .iter()
            .any(|key| entries(resources, key).any(|(name, _)| want(name)))
    };
    if named(|name| name.starts_with("hugepages-"))
        && !named(|name| matches!(name, "cpu" | "memory"))
    {
        errors.push(Error::forbidden(path, "HugePages require cpu or memory"));
    }
}

/// Checks the requests and limits of a whole pod.
pub(super) fn pod_level(resources: &Value, path: &Path, errors: &mut ErrorList) {
    if resources["claims"]
        .as_array()
        .is_some_and(|claims| !claims.is_empty())
    {
        errors.push(Error::forbidden(
            &path.child("claims"),
            "claims may not be set for Resources at pod-level",
        ));
    }
    for key in ["limits", "requests"] {
        for (name, _) in entries(resources, key) {
            if !matches!(name.as_str(), "cpu" | "memory") && !name.starts_with("hugepages-") {
                let supported = ["cpu", "hugepages-", "memory"];
                errors.push(Error::not_supported(
                    &path.child(key).key(name),
                    name,
                    &supported,
                ));
            }
        }
    }
    container(resources, path, errors);
}

/// Checks a list of amounts.
pub(super) fn quantities(amounts: &Value, path: &Path, errors: &mut ErrorList) {
    for (name, amount) in amounts.as_object().into_iter().flatten() {
        resource_name(name, path, errors);
        resource_amount(name, amount, &path.key(name), errors);
    }
}

fn resource_name(name: &str, path: &Path, errors: &mut ErrorList) {
    const STANDARD: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
    rule(names::qualified_name(name), name, path, errors);
    if !name.contains('/') && !STANDARD.contains(&name) && !name.starts_with("hugepages-") {
        errors.push(Error::invalid(
            path,
            name,
            "must be a standard resource type or fully qualified",
        ));
        errors.push(Error::invalid(
            path,
            name,
            "must be a standard resource for containers",
        ));
    }
}

/// Checks an amount of a resource.
pub(super) fn resource_amount(name: &str, amount: &Value, path: &Path, errors: &mut ErrorList) {
    let Some(parsed) = quantity(amount) else {
        return;
    };
    if parsed.cmp(&Quantity::ZERO) == Ordering::Less {
        errors.push(Error::invalid(
            path,
            amount,
            "must be greater than or equal to 0",
        ));
    }
    if is_integer(name) && parsed.milli_value() % 1000 != 0 {
        errors.push(Error::invalid(path, amount, "must be an integer"));
    }
}
