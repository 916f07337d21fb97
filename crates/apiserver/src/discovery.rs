//! Which groups, versions and resources are served: `/api`, `/apis` and below.

mod aggregated;
mod merged;

use std::collections::BTreeSet;

use http::Response;
use serde_json::{Value, json};

use crate::body::{Body, text_response};
use crate::encode::{bytes_response, value_response};
use crate::error::{ApiError, Result};
use crate::negotiate::{MediaType, Offer, acceptable, negotiate};
use crate::registry::{Registry, Resource};
use crate::request::Incoming;
use crate::state::ServerState;

use merged::Group;

/// The answer to any path that is not a resource.
///
/// # Errors
/// 404, 406.
pub fn answer(core: &ServerState, request: &Incoming) -> Result<Response<Body>> {
    let (registry, in_process) = (core.registry.load(), request.in_process);
    let path = request.info.path.trim_start_matches('/');
    if path.len() + 1 < request.info.path.len() {
        return Ok(nothing());
    }
    let parts: Vec<&str> = match path.strip_suffix('/').unwrap_or(path) {
        "" | "index.html" => Vec::new(),
        path => path.split('/').collect(),
    };
    let reads = request.method == http::Method::GET;
    // The lists of groups, and documents of CRD groups, are returned for any method.
    let builtin = match parts.as_slice() {
        ["api"] | ["apis", "apiregistration.k8s.io"] => true,
        ["api", version] => registry.has_version(in_process, "", version),
        ["apis", name, version] => {
            is_builtin(&registry, name) && registry.has_version(in_process, name, version)
        }
        _ => false,
    };
    if builtin && !reads {
        return Err(ApiError::method_not_allowed());
    }
    if builtin {
        acceptable(&request.headers, false)?;
    }
    if let ["api" | "apis"] = parts.as_slice()
        && let Some(response) = aggregated::answer(core, &registry, request, parts[0] == "api")
    {
        return Ok(response);
    }
    if parts.is_empty() {
        // The same for every client and method.
        let text = serde_json::to_vec_pretty(&paths(core, &registry)).unwrap_or_default();
        return Ok(bytes_response(200, text, MediaType::JSON));
    }
    let value = match parts.as_slice() {
        ["api"] => json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": core
                .config
                .advertise
                .map(|address| address.to_string())
                .unwrap_or_default()}],
        }),
        ["api", version] if registry.has_version(in_process, "", version) => {
            resource_list(&registry, in_process, "", version)
        }
        ["apis"] => {
            let groups: Vec<Value> = merged::groups(core, &registry).iter().map(group).collect();
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        }
        ["apis", name] if !name.is_empty() => {
            let Some(found) = merged::group(core, &registry, name) else {
                return Ok(nothing());
            };
            let mut value = group(&found);
            value["kind"] = "APIGroup".into();
            value["apiVersion"] = "v1".into();
            value
        }
        ["apis", name, version] if registry.has_version(in_process, name, version) => {
            resource_list(&registry, in_process, name, version)
        }
        ["apis", name, _] if is_builtin(&registry, name) => return Err(ApiError::no_such_path()),
        ["api", _] => return Err(ApiError::no_such_path()),
        _ => return Ok(nothing()),
    };
    let media = negotiate(&request.headers, &request.query, Offer::Document)?;
    Ok(value_response(200, &value, media))
}

/// The answer for paths that do not exist.
fn nothing() -> Response<Body> {
    text_response(404, "404 page not found\n")
}

/// The group exists without any CRD.
fn is_builtin(registry: &Registry, group: &str) -> bool {
    registry
        .of_group(group)
        .any(|resource| resource.custom.is_none())
}

fn paths(core: &ServerState, registry: &Registry) -> Value {
    let mut paths: BTreeSet<String> = [
        "/.well-known/openid-configuration",
        "/api",
        "/api/v1",
        "/apis",
        "/apis/",
        "/metrics",
        "/metrics/slis",
        "/openapi/v2",
        "/openapi/v3",
        "/openapi/v3/",
        "/openid/v1/jwks",
        "/version",
    ]
    .map(str::to_owned)
    .into();
    paths.extend(crate::zpages::paths(core).map(str::to_owned));
    for Group { name, versions } in merged::groups(core, registry) {
        paths.insert(format!("/apis/{name}"));
        for version in versions {
            paths.insert(format!("/apis/{name}/{}", version.name));
        }
    }
    for endpoint in crate::health::ENDPOINTS {
        paths.insert(format!("/{endpoint}"));
        for check in crate::health::checks(endpoint) {
            paths.insert(format!("/{endpoint}/{check}"));
        }
    }
    json!({"paths": paths})
}

fn group(group: &Group) -> Value {
    let name = &group.name;
    let entry = |version: &merged::Version| {
        let version = &version.name;
        json!({"groupVersion": format!("{name}/{version}"), "version": version})
    };
    let versions: Vec<Value> = group.versions.iter().map(entry).collect();
    json!({"name": name, "preferredVersion": versions.first(), "versions": versions})
}

fn resource_list(registry: &Registry, in_process: bool, group: &str, version: &str) -> Value {
    let mut resources = Vec::new();
    let served = registry.of_group(group).filter(|resource| {
        resource
            .version(version)
            .is_some_and(|version| version.open_to(in_process))
    });
    for resource in served {
        resources.push(resource_entry(resource));
        for subresource in resource.subresources_of(version) {
            let mut entry = json!({
                "name": format!("{}/{}", resource.plural, subresource.name), "singularName": "",
                "namespaced": resource.namespaced, "kind": subresource.kind, "verbs": subresource.verbs,
            });
            if !subresource.version.is_empty() {
                entry["group"] = subresource.group.as_str().into();
                entry["version"] = subresource.version.as_str().into();
            }
            resources.push(entry);
        }
    }
    let group_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    let mut value =
        json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": resources});
    if !group.is_empty() {
        value["apiVersion"] = "v1".into();
    }
    value
}

fn resource_entry(resource: &Resource) -> Value {
    let mut entry = json!({
        "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
        "kind": resource.kind, "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = resource.short_names.clone().into();
    }
    if !resource.categories.is_empty() {
        entry["categories"] = resource.categories.clone().into();
    }
    if resource
        .verbs
        .iter()
        .any(|verb| verb == "get" || verb == "list")
        && resource.verbs.len() > 2
    {
        entry["storageVersionHash"] = storage_hash(resource).into();
    }
    entry
}

/// A value that changes with the stored version.
fn storage_hash(resource: &Resource) -> String {
    use base64::Engine;
    use sha2::Digest;
    // Events of both groups are stored as those of the core group.
    let builtin = crate::builtin::find(&resource.group, &resource.plural);
    let group = builtin.map_or(resource.group.as_str(), |kind| kind.stored_as().0);
    // Definitions are hashed with the version that they were stored in first.
    let version = match resource.is("apiextensions.k8s.io", "customresourcedefinitions") {
        true => "v1beta1",
        false => resource.storage_version.as_str(),
    };
    let name = format!("{group}/{version}/{}", resource.kind);
    base64::engine::general_purpose::STANDARD.encode(&sha2::Sha256::digest(name.as_bytes())[..8])
}
