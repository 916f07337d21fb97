//! Aggregated discovery: everything in one document.

use http::header::{CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY};
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::merged::{self, Group};
use crate::body::Body;
use crate::encode::value_response;
use crate::negotiate::{MediaType, accepted};
use crate::registry::{Registry, Resource};
use crate::request::Incoming;
use crate::state::ServerState;

const TYPE: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The document, if the client prefers it.
pub(super) fn answer(
    core: &ServerState,
    registry: &Registry,
    request: &Incoming,
    legacy: bool,
) -> Option<Response<Body>> {
    let wanted = accepted(&request.headers).into_iter().find_map(|item| {
        if !item.covers("application/json") {
            return None;
        }
        match (
            item.parameter("as"),
            item.parameter("g"),
            item.parameter("v"),
        ) {
            (Some("APIGroupDiscoveryList"), Some("apidiscovery.k8s.io"), Some("v2")) => Some(true),
            (None, _, _) => Some(false),
            _ => None,
        }
    });
    if wanted != Some(true) {
        return None;
    }
    let groups = match legacy {
        true => vec![merged::core_group(core, registry)],
        false => merged::groups(core, registry),
    };
    let items: Vec<Value> = groups.iter().map(|it| group(registry, it)).collect();
    let document = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    });
    let digest = Sha256::digest(document.to_string().as_bytes());
    let etag = format!(
        "\"{}\"",
        digest
            .iter()
            .map(|byte| format!("{byte:02X}"))
            .collect::<String>()
    );
    let known = request
        .headers
        .get(IF_NONE_MATCH)
        .is_some_and(|value| value.as_bytes() == etag.as_bytes());
    let mut response = if known {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        value_response(200, &document, MediaType::JSON)
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(TYPE));
    headers.insert(VARY, HeaderValue::from_static("Accept"));
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        headers.insert(ETAG, etag);
    }
    Some(response)
}

fn group(registry: &Registry, group: &Group) -> Value {
    let name = &group.name;
    let own = |version: &str| -> Vec<Value> {
        let served = registry
            .of_group(name)
            .filter(|it| it.version(version).is_some_and(|it| it.served));
        served.map(|it| resource(it, version)).collect()
    };
    let entry = |version: &merged::Version| {
        let (name, extension) = (&version.name, &version.extension);
        let Some(extension) = extension else {
            return json!({"version": name, "resources": own(name), "freshness": "Current"});
        };
        let known = extension.discovered();
        let freshness = if known.current { "Current" } else { "Stale" };
        let mut entry = json!({"version": name, "freshness": freshness});
        if !known.resources.is_empty() {
            entry["resources"] = known.resources.clone().into();
        }
        entry
    };
    let versions: Vec<Value> = group.versions.iter().map(entry).collect();
    let mut metadata = json!({});
    if !name.is_empty() {
        metadata["name"] = name.as_str().into();
    }
    json!({"metadata": metadata, "versions": versions})
}

fn resource(resource: &Resource, version: &str) -> Value {
    let kind = |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let mut entry = json!({
        "resource": resource.plural, "responseKind": kind("", "", &resource.kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular, "verbs": resource.verbs,
    });
    for (key, list) in [
        ("shortNames", &resource.short_names),
        ("categories", &resource.categories),
    ] {
        if !list.is_empty() {
            entry[key] = list.clone().into();
        }
    }
    let subresources = resource.subresources_of(version).map(|sub| {
        let response = kind(&sub.group, &sub.version, &sub.kind);
        json!({"subresource": sub.name, "responseKind": response, "verbs": sub.verbs})
    });
    let subresources: Vec<Value> = subresources.collect();
    if !subresources.is_empty() {
        entry["subresources"] = subresources.into();
    }
    entry
}
