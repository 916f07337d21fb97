//! Resource requests and limits.

use std::cmp::Ordering;

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use allot_apimachinery::quantity::Quantity;
use allot_model::quota::pods;
use serde_json::Value;

use super::{entries, list, quantity, rule};
use crate::empties;

/// A resource of Kubernetes itself.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// A resource with integer quantities.
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
pub(crate) fn container(resources: &Value, path: &Path, errors: &mut ErrorList) {
    requirements(resources, resource_name, path, errors);
}

fn requirements(
    resources: &Value,
    check_name: fn(&str, &Path, &mut ErrorList),
    path: &Path,
    errors: &mut ErrorList,
) {
    let (limits, requests) = (path.child("limits"), path.child("requests"));
    for (name, amount) in entries(resources, "limits") {
        let at = limits.key(name);
        check_name(name, &at, errors);
        resource_amount(name, amount, &at, errors);
        pages(name, amount, &at, errors);
    }
    for (name, amount) in entries(resources, "requests") {
        let at = requests.key(name);
        check_name(name, &at, errors);
        resource_amount(name, amount, &at, errors);
        pages(name, amount, &at, errors);
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
pub(crate) fn pod_level(resources: &Value, path: &Path, errors: &mut ErrorList) {
    let claims = resources["claims"].as_array();
    let at = path.child("claims");
    if claims.is_some_and(|claims| !claims.is_empty()) || empties::has(&at) {
        errors.push(Error::forbidden(
            &at,
            "claims may not be set for Resources at pod-level",
        ));
    }
    requirements(resources, pod_level_name, path, errors);
}

/// What containers need and may use has to fit into what their pod has.
pub(crate) fn pod_and_containers(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let own = |key: &str, name: &str| quantity(&spec["resources"][key][name]);
    for (key, words) in [
        ("requests", "container requests"),
        ("limits", "container limits"),
    ] {
        for (name, sum) in pods::of_spec(spec, key) {
            // Of limits only those of huge pages are summed.
            if key == "limits" && !name.starts_with("hugepages-") {
                continue;
            }
            if let Some(own) = own(key, &name).filter(|own| sum > *own) {
                let at = path.child(key).key(&name);
                let detail = format!("must be greater than or equal to aggregate {words} of {sum}");
                errors.push(Error::invalid(&at, own.to_string(), detail));
            }
        }
    }
    for (index, container) in list(spec, "containers").iter().enumerate() {
        for (name, amount) in entries(&container["resources"], "limits") {
            let most = own("limits", name);
            let (Some(amount), Some(most)) = (quantity(amount), most) else {
                continue;
            };
            if amount > most {
                let at = path
                    .child("containers")
                    .index(index)
                    .key(name)
                    .child("limits");
                let detail = format!("must be less than or equal to pod limits of {most}");
                errors.push(Error::invalid(&at, amount.to_string(), detail));
            }
        }
    }
}

fn pod_level_name(name: &str, path: &Path, errors: &mut ErrorList) {
    let before = errors.len();
    standard_name(name, path, errors);
    if errors.len() == before
        && !matches!(name, "cpu" | "memory")
        && !name.starts_with("hugepages-")
    {
        let supported = ["cpu", "hugepages-", "memory"];
        errors.push(Error::not_supported(path, name, &supported));
    }
}

/// Huge pages must be multiples of the page size.
fn pages(name: &str, amount: &Value, path: &Path, errors: &mut ErrorList) {
    let size: Option<Quantity> = name
        .strip_prefix("hugepages-")
        .and_then(|size| size.parse().ok());
    let (Some(size), Some(parsed)) = (size.map(|size| size.value()), quantity(amount)) else {
        return;
    };
    if size > 0 && parsed.value() % size != 0 {
        let detail = format!("{parsed} is not positive integer multiple of {name}");
        errors.push(Error::invalid(path, amount, detail));
    }
}

/// Checks a list of amounts.
pub(crate) fn quantities(amounts: &Value, path: &Path, errors: &mut ErrorList) {
    for (name, amount) in amounts.as_object().into_iter().flatten() {
        let at = path.key(name);
        resource_name(name, &at, errors);
        resource_amount(name, amount, &at, errors);
    }
}

/// A name with a domain, or one of the resources that clusters have.
pub(crate) fn standard_name(name: &str, path: &Path, errors: &mut ErrorList) {
    const STANDARD: [&str; 17] = [
        "cpu",
        "memory",
        "ephemeral-storage",
        "requests.cpu",
        "requests.memory",
        "requests.ephemeral-storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "storage",
    ];
    const MORE: [&str; 3] = [
        "requests.storage",
        "services.nodeports",
        "services.loadbalancers",
    ];
    let texts = names::qualified_name(name);
    let well_formed = texts.is_empty();
    rule(texts, name, path, errors);
    if well_formed
        && !name.contains('/')
        && !STANDARD.contains(&name)
        && !MORE.contains(&name)
        && !name.starts_with("hugepages-")
        && !name.starts_with("requests.hugepages-")
    {
        let detail = "must be a standard resource type or fully qualified";
        errors.push(Error::invalid(path, name, detail));
    }
}

/// A resource that containers can have.
pub(crate) fn resource_name(name: &str, path: &Path, errors: &mut ErrorList) {
    const OF_CONTAINERS: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
    standard_name(name, path, errors);
    if !name.contains('/') {
        if !OF_CONTAINERS.contains(&name) && !name.starts_with("hugepages-") {
            let detail = "must be a standard resource for containers";
            errors.push(Error::invalid(path, name, detail));
        }
    } else if !is_native(name)
        && (name.starts_with("requests.")
            || !names::qualified_name(&format!("requests.{name}")).is_empty())
    {
        // The quota for it has a longer name.
        let detail = "doesn't follow extended resource name standard";
        errors.push(Error::invalid(path, name, detail));
    }
}

/// Checks an amount of a resource.
pub(crate) fn resource_amount(name: &str, amount: &Value, path: &Path, errors: &mut ErrorList) {
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
