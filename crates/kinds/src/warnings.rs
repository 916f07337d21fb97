//! What an accepted write is warned about: texts of upstream, in its order.

use std::collections::{BTreeSet, HashSet};

use allot_apimachinery::Quantity;
use allot_apimachinery::names;
use allot_apimachinery::quote::quote;
use serde_json::Value;

use crate::object::{meta, metadata_mut};
use crate::registry::Resource;
use crate::request::DeleteOptions;
use crate::versions::dra_kind;

mod addresses;
mod pod;

/// Replaces old annotations of a new object by fields; returns the warnings about them.
pub fn replace_annotations(resource: &Resource, object: &mut Value) -> Vec<String> {
    match resource.is("", "pods") {
        true => pod::app_armor_fields(object),
        false => Vec::new(),
    }
}

/// Warnings about a delete. By default jobs orphan their pods, which is rarely intended.
pub fn on_delete(resource: &Resource, options: &DeleteOptions) -> Option<&'static str> {
    (resource.is("batch", "jobs") && options.propagation.is_none()).then_some(
        "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or \
         set propagationPolicy=Orphan to suppress this warning",
    )
}

/// Warnings about a new object.
pub fn on_create(resource: &Resource, object: &Value) -> Vec<String> {
    let mut found = kind(resource, object);
    if resource.is("storage.k8s.io", "csidrivers") {
        found.extend(driver(object));
    }
    if resource.is("", "resourcequotas") {
        found.extend(quota(object));
    }
    if resource.custom.is_some() {
        found.extend(finalizers(object, &Value::Null));
    }
    if resource.is("apiextensions.k8s.io", "customresourcedefinitions") {
        found.extend(formats(object, &Value::Null));
    }
    let class = "kubernetes.io/ingress.class";
    if resource.is("networking.k8s.io", "ingresses")
        && object["metadata"]["annotations"].get(class).is_some()
    {
        found.push(format!(
            "annotation {class:?} is deprecated, please use 'spec.ingressClassName' instead"
        ));
    }
    if resource.is("", "pods") {
        found.splice(0..0, host_name(object, "the Pod's hostname"));
        return found;
    }
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("apps", "deployments" | "replicasets") | ("batch", _) | ("", "replicationcontrollers") => {
            found.splice(0..0, host_name(object, "Pod names and hostnames"));
        }
        _ => {}
    }
    found
}

/// Warnings about a changed object. Pods cause none, since they are rarely written by hand.
pub fn on_update(resource: &Resource, object: &Value, old: &Value) -> Vec<String> {
    if resource.is("", "pods") {
        return Vec::new();
    }
    if resource.custom.is_some() {
        return finalizers(object, old);
    }
    if resource.is("apiextensions.k8s.io", "customresourcedefinitions") {
        return formats(object, old);
    }
    let generation = |object: &Value| object["metadata"]["generation"].clone();
    if matches!(resource.group.as_str(), "apps" | "batch") && generation(object) == generation(old)
    {
        return Vec::new();
    }
    kind(resource, object)
}

fn kind(resource: &Resource, object: &Value) -> Vec<String> {
    if let Some(kind) = dra_kind(resource) {
        return allot_model::validate::warnings(kind, object);
    }
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => pod::warnings(object, ""),
        ("batch", "jobs") => job(&object["spec"], "spec"),
        ("apps", _) | ("", "replicationcontrollers") => {
            pod::warnings(&object["spec"]["template"], "spec.template.")
        }
        ("batch", "cronjobs") => job(
            &object["spec"]["jobTemplate"]["spec"],
            "spec.jobTemplate.spec",
        ),
        ("", "podtemplates") => pod::warnings(&object["template"], "template."),
        ("", "services") => service(object),
        ("", "nodes") => node(object),
        ("", "endpoints") => addresses::endpoints(object),
        ("discovery.k8s.io", "endpointslices") => addresses::endpoint_slice(object),
        ("networking.k8s.io", "networkpolicies") => addresses::policy(&object["spec"]),
        ("", "persistentvolumeclaims") => {
            let mut found = annotation(object, OLD_CLASS);
            found.extend(pod::claim_spec(&object["spec"], "spec"));
            found
        }
        ("", "persistentvolumes") => volume(object),
        _ => Vec::new(),
    }
}

/// A name of more than one label is an unusual host name.
fn host_name(object: &Value, of: &str) -> Option<String> {
    let texts = names::dns1123_label(meta(object, "name"));
    (!texts.is_empty()).then(|| {
        format!(
            "metadata.name: this is used in {of}, which can result in surprising behavior; a DNS label is recommended: [{}]",
            texts.join(" ")
        )
    })
}

/// New finalizers of custom resources should have a domain.
fn finalizers(object: &Value, old: &Value) -> Vec<String> {
    const STANDARD: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];
    let names_of = |object: &Value| -> BTreeSet<String> {
        let list = object["metadata"]["finalizers"].as_array();
        let names = list.into_iter().flatten().filter_map(Value::as_str);
        names.map(str::to_owned).collect()
    };
    let mut found = Vec::new();
    for name in names_of(object).difference(&names_of(old)) {
        let at = format!("metadata.finalizers: {}", quote(name));
        let texts = names::qualified_name(name);
        found.extend(texts.into_iter().map(|text| format!("{at}: {text}")));
        if name.contains('/') || STANDARD.contains(&name.as_str()) {
            continue;
        }
        let path = if name.contains('.') {
            " including a path (/)"
        } else {
            ""
        };
        found.push(format!(
            "{at}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers"
        ));
    }
    found
}

fn service(object: &Value) -> Vec<String> {
    let spec = &object["spec"];
    let text = |key: &str| spec[key].as_str().unwrap_or_default();
    let external = spec["externalIPs"]
        .as_array()
        .is_some_and(|list| !list.is_empty());
    let mut found = Vec::new();
    let hints = "service.kubernetes.io/topology-aware-hints";
    if object["metadata"]["annotations"].get(hints).is_some() {
        found.push(format!(
            "annotation {hints} is deprecated, please use service.kubernetes.io/topology-mode instead"
        ));
    }
    if !matches!(text("clusterIP"), "" | "None") {
        found.extend(addresses::list("spec.clusterIPs", &spec["clusterIPs"]));
    }
    if text("type") == "ClusterIP" && text("clusterIP") == "None" {
        if !text("loadBalancerIP").is_empty() {
            found.push("spec.loadBalancerIP is ignored for headless services".to_owned());
        }
        if external {
            found.push("spec.externalIPs is ignored for headless services".to_owned());
        }
        if text("sessionAffinity") != "None" {
            found.push("spec.SessionAffinity is ignored for headless services".to_owned());
        }
    }
    found.extend(addresses::list("spec.externalIPs", &spec["externalIPs"]));
    if external && text("clusterIP") != "None" && text("type") != "ExternalName" {
        let words =
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters";
        found.push(words.to_owned());
    }
    let balancer = text("loadBalancerIP");
    if !balancer.is_empty() {
        found.extend(addresses::one("spec.loadBalancerIP", balancer));
    }
    let ranges = "spec.loadBalancerSourceRanges";
    found.extend(addresses::ranges(ranges, &spec["loadBalancerSourceRanges"]));
    if text("type") == "ExternalName" {
        if external {
            let words = "spec.externalIPs is ignored when spec.type is \"ExternalName\"";
            found.push(words.to_owned());
        }
    } else if !text("externalName").is_empty() {
        let words = "spec.externalName is ignored when spec.type is not \"ExternalName\"";
        found.push(words.to_owned());
    }
    if text("trafficDistribution") == "PreferClose" {
        let words =
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"";
        found.push(words.to_owned());
    }
    found
}

fn node(object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    if object["spec"]["configSource"].is_object() {
        let words = "spec.configSource: the spec.configSource field is deprecated";
        found.push(words.to_owned());
    }
    if text(&object["spec"]["externalID"]) {
        let words = "spec.externalID: this field is deprecated, and is unused by Kubernetes";
        found.push(words.to_owned());
    }
    found.extend(addresses::ranges(
        "spec.podCIDRs",
        &object["spec"]["podCIDRs"],
    ));
    found
}

/// What is requested should not exceed the limit of it.
fn quota(object: &Value) -> Vec<String> {
    let hard = &object["spec"]["hard"];
    let amount = |name: &str| -> Option<Quantity> { hard[name].as_str()?.parse().ok() };
    let mut found = Vec::new();
    for (resource, bare) in [
        ("cpu", true),
        ("memory", true),
        ("storage", false),
        ("ephemeral-storage", false),
    ] {
        let mut requests = format!("requests.{resource}");
        if bare && hard[&requests].is_null() {
            requests = resource.to_owned();
        }
        let limits = format!("limits.{resource}");
        if let (Some(request), Some(limit)) = (amount(&requests), amount(&limits))
            && request > limit
        {
            found.push(format!(
                "ResourceQuota {requests} ({request}) should be less than {limits} ({limit})"
            ));
        }
    }
    found
}

/// Tokens should be among the secrets of a driver.
fn driver(object: &Value) -> Option<String> {
    let spec = &object["spec"];
    let asks = spec["tokenRequests"]
        .as_array()
        .is_some_and(|all| !all.is_empty());
    (asks && spec["serviceAccountTokenInSecrets"].is_null()).then(|| {
        "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes".to_owned()
    })
}

/// Annotations of volumes and claims that were replaced by fields, and the warnings about them.
const OLD_CLASS: (&str, &str) = (
    "volume.beta.kubernetes.io/storage-class",
    "deprecated since v1.8; use \"storageClassName\" attribute instead",
);
const OLD_OPTIONS: (&str, &str) = (
    "volume.beta.kubernetes.io/mount-options",
    "deprecated since v1.31; use \"mountOptions\" attribute instead",
);

fn annotation(object: &Value, (key, message): (&str, &str)) -> Vec<String> {
    let found = object["metadata"]["annotations"].get(key);
    let text = |_| format!("metadata.annotations[{key}]: {message}");
    found.map(text).into_iter().collect()
}

fn volume(object: &Value) -> Vec<String> {
    let mut found = annotation(object, OLD_CLASS);
    found.extend(annotation(object, OLD_OPTIONS));
    if object["spec"]["persistentVolumeReclaimPolicy"] == "Recycle" {
        found.push("spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.".to_owned());
    }
    found
}

/// A job with so many indexes that its status may not hold all of them.
fn job(spec: &Value, path: &str) -> Vec<String> {
    const COMPLETIONS: i64 = 100_000;
    const PARALLELISM: i64 = 10_000;
    let more = |key: &str, limit| spec[key].as_i64().is_some_and(|number| number > limit);
    let mut found = Vec::new();
    if spec["completionMode"] == "Indexed"
        && more("completions", COMPLETIONS)
        && more("parallelism", PARALLELISM)
    {
        found.push(format!(
            "{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
             Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        ));
    }
    found.extend(pod::warnings(
        &spec["template"],
        &format!("{path}.template."),
    ));
    found
}

/// Removes duplicate owner references; returns the warning about them. Patches are checked after admission.
pub fn repeated_owners(object: &mut Value, admitted: bool) -> Option<String> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let mut kept: Vec<Value> = Vec::new();
    let mut repeated: Vec<String> = Vec::new();
    let (mut seen, mut told) = (HashSet::new(), HashSet::new());
    for owner in owners {
        if seen.insert(owner.to_string()) {
            kept.push(owner.clone());
            continue;
        }
        let uid = owner["uid"].as_str().unwrap_or_default().to_owned();
        if told.insert(uid.clone()) {
            repeated.push(uid);
        }
    }
    if repeated.is_empty() {
        return None;
    }
    metadata_mut(object).insert("ownerReferences".to_owned(), kept.into());
    let admitted = if admitted {
        " after mutating admission happens"
    } else {
        ""
    };
    Some(format!(
        ".metadata.ownerReferences contains duplicate entries{admitted}; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        repeated.join(", ")
    ))
}

/// Unsupported formats in a CRD that are new.
fn formats(definition: &Value, old: &Value) -> Vec<String> {
    let had = allot_schema::definition::unknown_formats(old);
    let has = allot_schema::definition::unknown_formats(definition);
    let new = has.into_iter().filter(|format| !had.contains(format));
    new.map(|format| format!("unrecognized format {format:?}"))
        .collect()
}

#[cfg(test)]
mod tests;
