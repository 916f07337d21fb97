//! The parts of pods about claims: references in the spec and the status fields of controllers and kubelets.
//!
//! The API server calls these functions while it validates pods and pod templates; the rest of a pod is validated
//! elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::names as rules;
use allot_apimachinery::quote::go_json;
use serde_json::Value;

use super::common::invalid;
use super::names;
use crate::shape::{self, Ty, tables};
use crate::view::View;

/// The annotation of a mirror pod, the API object of a static pod.
pub const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// The names of a pod's claims, for [`container_claims`].
pub fn claim_names(spec: &Value) -> BTreeSet<String> {
    let names = spec
        .list("resourceClaims")
        .iter()
        .map(|claim| claim.text("name"));
    names
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Checks `spec.resourceClaims`. `metadata` is that of the pod, null for a pod template; `path` is that of the spec.
pub fn resource_claims(metadata: &Value, spec: &Value, path: &Path) -> ErrorList {
    let path = path.child("resourceClaims");
    let claims = spec.list("resourceClaims");
    let mut errors = ErrorList::new();
    if metadata.at("annotations").has(MIRROR_ANNOTATION) {
        // Upstream reports this error alone for each claim, with a path that has no name.
        let nowhere = Path::new("[]");
        let text = "static pods do not support resource claims";
        errors.extend(claims.iter().map(|_| Error::forbidden(&nowhere, text)));
        return errors;
    }
    let mut seen = BTreeSet::new();
    for (index, claim) in claims.iter().enumerate() {
        let path = path.index(index);
        let name = claim.text("name");
        let name_path = path.child("name");
        if name.is_empty() {
            errors.push(Error::required(&name_path, ""));
        } else if seen.insert(name) {
            errors.extend(names::label(name, &name_path));
        } else {
            errors.push(Error::duplicate(&name_path, name));
        }
        errors.extend(claim_source(claim, &path));
    }
    errors
}

/// Validates the source of a pod's claim.
fn claim_source(claim: &Value, path: &Path) -> ErrorList {
    let (by_name, by_template) = (
        claim.opt_text("resourceClaimName"),
        claim.opt_text("resourceClaimTemplateName"),
    );
    let complain = |text| {
        Error::invalid(
            path,
            BadValue::raw(shape::quote(tables::POD_RESOURCE_CLAIM, claim)),
            text,
        )
    };
    let mut errors = match (by_name, by_template) {
        (Some(_), Some(_)) => ErrorList::from([complain(
            "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
        )]),
        (None, None) => ErrorList::from([complain(
            "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
        )]),
        _ => ErrorList::new(),
    };
    if let Some(name) = by_name {
        errors.extend(names::subdomain(name, &path.child("resourceClaimName")));
    }
    if let Some(name) = by_template {
        errors.extend(names::subdomain(
            name,
            &path.child("resourceClaimTemplateName"),
        ));
    }
    errors
}

/// The number of claims of a pod up to which an error lists them.
const MOST_LISTED: usize = 32;

/// Checks `resources.claims` of a container, given at `path`. A claim may be used as a whole or by requests, each of
/// them once.
pub fn container_claims(claims: &[Value], pod_claims: &BTreeSet<String>, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for (index, claim) in claims.iter().enumerate() {
        let path = path.index(index);
        let (name, request) = (claim.text("name"), claim.text("request"));
        if name.is_empty() {
            errors.push(Error::required(&path, ""));
            continue;
        }
        if seen.contains(name) {
            errors.push(Error::duplicate(&path, name));
        } else {
            let mut key = name.to_owned();
            if !request.is_empty() {
                errors.extend(names::label(request, &path.child("request")));
                key = format!("{name}/{request}");
            }
            if seen.contains(&key) {
                errors.push(Error::duplicate(&path, key.as_str()));
            } else if request.is_empty() {
                let prefix = format!("{name}/");
                let after = seen.range(prefix.clone()..);
                let overlapping = after.take_while(|key| key.starts_with(&prefix));
                errors.extend(overlapping.map(|_| Error::duplicate(&path, name)));
            }
            seen.insert(key);
        }
        if !pod_claims.contains(name) {
            let mut error = Error::not_found(&path, name);
            error.detail = "must be one of the names in pod.spec.resourceClaims".to_owned();
            if pod_claims.len() > MOST_LISTED {
                // The names in every error would be a multiple of the pod.
            } else if pod_claims.is_empty() {
                error.detail.push_str(" which is empty");
            } else {
                let names: Vec<_> = pod_claims.iter().map(String::as_str).collect();
                error.detail.push_str(&format!(": {}", names.join(", ")));
            }
            errors.push(error);
        }
    }
    errors
}

/// Checks `status.resourceClaimStatuses`; `path` is that of the status.
pub fn resource_claim_statuses(status: &Value, spec: &Value, path: &Path) -> ErrorList {
    let path = path.child("resourceClaimStatuses");
    let pod_claims = claim_names(spec);
    let mut errors = ErrorList::new();
    let mut seen = BTreeSet::new();
    for (index, entry) in status.list("resourceClaimStatuses").iter().enumerate() {
        let (path, of_claim) = (
            path.index(index).child("name"),
            path.index(index).child("resourceClaimName"),
        );
        let name = entry.text("name");
        if !pod_claims.contains(name) {
            errors.push(Error::invalid(
                &path,
                name,
                "must match the name of an entry in `spec.resourceClaims`",
            ));
        }
        if !seen.insert(name) {
            errors.push(Error::duplicate(&path, name));
        }
        if let Some(claim) = entry.opt_text("resourceClaimName") {
            errors.extend(names::subdomain(claim, &of_claim));
        }
    }
    errors
}

/// Checks `status.extendedResourceClaimStatus`; `path` is that of the status.
pub fn extended_resource_claim_status(status: &Value, spec: &Value, path: &Path) -> ErrorList {
    if !status.has("extendedResourceClaimStatus") {
        return ErrorList::new();
    }
    let status = status.at("extendedResourceClaimStatus");
    let path = path.child("extendedResourceClaimStatus");
    let mappings = status.list("requestMappings");
    let mappings_path = path.child("requestMappings");
    let mut errors = ErrorList::new();
    if mappings.is_empty() {
        errors.push(Error::required(
            &mappings_path,
            "at least one request mapping is required",
        ));
    }
    let mut containers = BTreeMap::new();
    for container in spec
        .list("initContainers")
        .iter()
        .chain(spec.list("containers"))
    {
        containers
            .entry(container.text("name"))
            .or_insert(container);
    }
    let mut seen = BTreeSet::new();
    for (index, mapping) in mappings.iter().enumerate() {
        let idx = mappings_path.index(index);
        let (container, resource, request) = (
            mapping.text("containerName"),
            mapping.text("resourceName"),
            mapping.text("requestName"),
        );
        match containers.get(container) {
            None => {
                let text = "must match the name of an entry in spec.initContainers.name or spec.containers.name";
                errors.push(Error::invalid(&idx.child("containerName"), container, text));
            }
            Some(found) if !found.at("resources").entries("requests").contains(resource) => {
                let text = "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests";
                errors.push(Error::invalid(&idx.child("resourceName"), resource, text));
            }
            Some(_) => {}
        }
        // Upstream's path lacks the mapping here.
        errors.extend(invalid(
            &path.child("requestName"),
            request,
            rules::dns1123_label(request),
        ));
        if !seen.insert((container, resource, request)) {
            for (key, value) in [
                ("containerName", container),
                ("resourceName", resource),
                ("requestName", request),
            ] {
                errors.push(Error::duplicate(&idx.child(key), value));
            }
        }
    }
    let name_path = path.child("resourceClaimName");
    match status.text("resourceClaimName") {
        "" => errors.push(Error::required(&name_path, "")),
        name => errors.extend(names::subdomain(name, &name_path)),
    }
    errors
}

/// Checks `status.nodeAllocatableResourceClaimStatuses`; `path` is that of the status.
pub fn node_allocatable_statuses(status: &Value, spec: &Value, path: &Path) -> ErrorList {
    const KEY: &str = "nodeAllocatableResourceClaimStatuses";
    let named = |list: &'_ [Value], name: &str| {
        let mut names = list
            .iter()
            .filter_map(|entry| entry.opt_text("resourceClaimName"));
        names.any(|known| known == name)
    };
    let mut errors = ErrorList::new();
    for (index, entry) in status.list(KEY).iter().enumerate() {
        let path = path.child(KEY).index(index);
        let (name, name_path) = (
            entry.text("resourceClaimName"),
            path.child("resourceClaimName"),
        );
        if name.is_empty() {
            errors.push(Error::required(&name_path, "must not be empty"));
        }
        let known = named(spec.list("resourceClaims"), name)
            || named(status.list("resourceClaimStatuses"), name);
        if !known {
            let text = "no mapping found in pod reference";
            errors.push(Error::invalid(&name_path, name, text));
        }
        if entry.list("containers").is_empty() {
            let path = path.child("containers");
            errors.push(Error::required(&path, "must not be empty"));
        }
        let resources = entry.at("resources").as_object();
        let path = path.child("resources");
        if resources.is_none_or(serde_json::Map::is_empty) {
            errors.push(Error::required(&path, "must not be empty"));
        }
        for (name, amount) in resources.into_iter().flatten() {
            let path = path.key(name);
            if name.contains('/') && !name.contains("kubernetes.io/") {
                let text = "must be a node allocatable resource name";
                errors.push(Error::invalid(&path, name.as_str(), text));
            }
            if let Some(amount) = shape::quantity(amount)
                && amount.signum() < 0
            {
                let text = "must be non-negative";
                errors.push(Error::invalid(&path, amount.to_string(), text));
            }
        }
    }
    errors
}

/// Checks `allocatedResourcesStatus` of container statuses, given at `path`.
pub fn allocated_resources_status(
    statuses: &[Value],
    containers: &[Value],
    path: &Path,
) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut by_name = BTreeMap::new();
    for container in containers {
        by_name
            .entry(container.text("name"))
            .or_insert_with(|| (container.at("resources"), claims(container)));
    }
    for (index, status) in statuses.iter().enumerate() {
        let container = by_name.get(status.text("name"));
        let path = path.index(index).child("allocatedResourcesStatus");
        for (index, allocated) in status.list("allocatedResourcesStatus").iter().enumerate() {
            let path = path.index(index);
            let name = allocated.text("name");
            // A container that is gone is no reason to refuse the rest.
            if let Some(text) =
                container.and_then(|(resources, claims)| unknown_resource(name, resources, claims))
            {
                let shown = BadValue::raw(go_json(&Value::from(name)));
                errors.push(Error::invalid(&path.child("name"), shown, text));
            }
            errors.extend(health(
                allocated.list("resources"),
                &path.child("resources"),
            ));
        }
    }
    errors
}

/// The claims of a container as the names of resources.
fn claims(container: &Value) -> BTreeSet<String> {
    let claims = container.at("resources").list("claims").iter();
    claims
        .map(|claim| match claim.text("request") {
            "" => format!("claim:{}", claim.text("name")),
            request => format!("claim:{}/{request}", claim.text("name")),
        })
        .collect()
}

fn unknown_resource(
    name: &str,
    resources: &Value,
    claims: &BTreeSet<String>,
) -> Option<&'static str> {
    if !name.starts_with("claim:") {
        let known = resources.entries("requests").contains(name);
        return (!known).then_some("must match one of the container's resource requests");
    }
    const TEXT: &str = "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty";
    (!claims.contains(name)).then_some(TEXT)
}

fn health(resources: &[Value], path: &Path) -> ErrorList {
    const HEALTH: [&str; 3] = ["Healthy", "Unhealthy", "Unknown"];
    let mut errors = ErrorList::new();
    let mut seen = BTreeSet::new();
    for (index, resource) in resources.iter().enumerate() {
        let path = path.index(index);
        let health = resource.text("health");
        if !HEALTH.contains(&health) {
            errors.push(super::claim::not_supported(
                &path.child("health"),
                health,
                &HEALTH,
            ));
        }
        let id = resource.text("resourceID");
        if !seen.insert(id) {
            errors.push(Error::duplicate(
                &path.child("resourceID"),
                BadValue::raw(go_json(&Value::from(id))),
            ));
        }
    }
    errors
}

/// Node selector terms as upstream shows them in errors.
pub fn node_selector_terms(terms: &Value) -> String {
    shape::quote(tables::NODE_SELECTOR_TERMS, terms)
}

/// A node selector term as upstream shows it in errors.
pub fn node_selector_term(term: &Value) -> String {
    shape::quote(Ty::Struct(&tables::NODE_SELECTOR_TERM), term)
}
