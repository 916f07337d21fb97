//! From a parsed path to the resource that serves it, with upstream's answers for paths and methods without a handler.

use std::sync::Arc;

use allot_apimachinery::Status;
use http::Method;

use super::{media_type, patch};
use crate::context::Core;
use crate::error::{ApiError, Result};
use crate::negotiate::{acceptable, acceptable_log};
use crate::registry::Resource;
use crate::request::{Incoming, RequestInfo};

/// The resource that a request is for. None for a path that does not exist, which is answered in plain text.
///
/// # Errors
/// 404 or 405 as a Status for a path or method of a built-in group that has no handler.
pub(super) fn resource(core: &Core, request: &Incoming) -> Result<Option<Arc<Resource>>> {
    let info = &request.info;
    if info.path.starts_with("//") {
        // Authorized as the path without the first slash, but it has no handler.
        return Ok(None);
    }
    let registry = core.registry.load();
    let Some(resource) = registry
        .served(
            request.in_process,
            &info.group,
            &info.version,
            &info.resource,
        )
        .cloned()
    else {
        // Paths of built-in groups answer with a Status; other paths get a plain 404.
        let builtin = registry.of_group(&info.group).any(|it| it.custom.is_none());
        return match builtin {
            true => Err(ApiError::no_such_path()),
            false => Ok(None),
        };
    };
    if resource.custom.is_some() {
        return Ok(in_scope(&resource, info).then_some(resource));
    }
    check_builtin(&resource, request)?;
    Ok(Some(resource))
}

/// Whether a path and method of a built-in resource have a handler. Nothing else of a request without one is looked at,
/// neither its options nor what it accepts.
fn check_builtin(resource: &Resource, request: &Incoming) -> Result<()> {
    let info = &request.info;
    let subresource = resource.subresource(&info.subresource);
    let unknown = !info.subresource.is_empty() && subresource.is_none();
    // The deprecated paths that begin with `proxy` have permissions of their own, and no handler.
    if unknown || info.verb == "proxy" || !is_in_place(resource, info) {
        return Err(ApiError::no_such_path());
    }
    // Reviews, which are answered and not stored, have no path with a name, nor one across namespaces.
    let asked_only = resource.verbs.iter().all(|verb| verb == "create");
    let across = resource.namespaced && info.namespace.is_empty();
    if asked_only && info.subresource.is_empty() && (!info.name.is_empty() || across) {
        return Err(ApiError::no_such_path());
    }
    let proxied = info.subresource == "proxy";
    let is_head = request.method == Method::HEAD && !proxied;
    // A proxy passes on what browsers ask first as well; the API has no verb for that.
    let passed_on = proxied && request.method == Method::OPTIONS;
    let has_handler = match subresource {
        Some(subresource) if info.rest.is_empty() => subresource.verbs.contains(&info.verb),
        _ => !info.verb.is_empty(),
    };
    if is_head || !(has_handler || passed_on) {
        return Err(ApiError::method_not_allowed());
    }
    if info.subresource.is_empty() && !is_routed(resource, info, &request.method) {
        return Err(ApiError::method_not_allowed());
    }
    Ok(())
}

/// Whether the handler takes what is sent and can answer what is accepted. Warns of deprecated versions.
///
/// # Errors
/// 415 for a patch of an unknown type, 406 for an answer that nothing accepts, and upstream's errors for subresources
/// and verbs that a definition does not have.
pub(super) fn check_handler(core: &Core, resource: &Resource, request: &Incoming) -> Result<()> {
    let info = &request.info;
    if resource.custom.is_some() {
        // Upstream warns before it looks at the subresource.
        if let Some(version) = resource.version(&info.version) {
            request.warnings.add(version.deprecation.clone());
        }
        return check_custom(resource, info);
    }
    let verb = info.verb.as_str();
    let subresource = resource.subresource(&info.subresource);
    // A patch in an unknown format has no handler.
    let read =
        verb != "patch" || patch::MEDIA_TYPES.contains(&&*media_type::patch_type(&request.headers));
    if info.subresource.is_empty() {
        // The router looks at what is sent before it looks at what is accepted.
        if !read {
            return Err(patch::unknown_media_type());
        }
        let streams = info.name.is_empty() && request.method == Method::GET;
        acceptable(&request.headers, streams)?;
    } else if subresource.is_some() {
        match info.subresource.as_str() {
            "log" => acceptable_log(&request.headers)?,
            "exec" | "attach" | "portforward" | "proxy" => {}
            _ => acceptable(&request.headers, false)?,
        }
    }
    // Only a handler sends a deprecation warning, not a path without one; also for an answer that is not acceptable.
    let handled = read
        && match subresource {
            Some(subresource) => subresource.verbs.iter().any(|known| known == verb),
            None => info.subresource.is_empty(),
        };
    if let Some(version) = resource.version(&info.version).filter(|_| handled) {
        request.warnings.add(version.deprecation.clone());
        if !version.removed.is_empty() {
            core.metrics.deprecated(info, &version.removed);
        }
    }
    Ok(())
}

/// Whether a path of a built-in resource without subresource has a handler for the method.
fn is_routed(resource: &Resource, info: &RequestInfo, method: &Method) -> bool {
    let (verb, collection) = (info.verb.as_str(), info.name.is_empty());
    let across_namespaces = resource.namespaced && info.namespace.is_empty();
    resource.verbs.iter().any(|known| known == verb)
        && !(verb == "create" && (!collection || across_namespaces))
        && !(across_namespaces && verb == "deletecollection")
        // All requests to the deprecated paths count as watches.
        && !(verb == "watch" && *method != Method::GET)
        && !(collection && matches!(*method, Method::PUT | Method::PATCH))
}

/// The path of a built-in resource has a namespace where it must have one. That of a namespace is its own name: permissions
/// in one namespace must not reach another one through `namespaces/own/namespaces/other`.
fn is_in_place(resource: &Resource, info: &RequestInfo) -> bool {
    match info.namespace.as_str() {
        "" => !resource.namespaced || info.name.is_empty(),
        namespace if resource.rules.is_namespace => namespace == info.name,
        _ => resource.namespaced,
    }
}

/// The path of a custom resource has a namespace exactly if it must have one; upstream answers all others with 404.
fn in_scope(resource: &Resource, info: &RequestInfo) -> bool {
    match (resource.namespaced, info.namespace.is_empty()) {
        (true, true) => matches!(info.verb.as_str(), "list" | "watch"),
        (namespaced, without) => namespaced != without,
    }
}

/// Upstream's checks of a custom resource request before all others: endpoints that its version does not have, and
/// verbs.
fn check_custom(resource: &Resource, info: &RequestInfo) -> Result<()> {
    let group_resource = resource.group_resource();
    let mut subresources = resource.subresources_of(&info.version);
    let exists =
        info.subresource.is_empty() || subresources.any(|sub| sub.name == info.subresource);
    if !exists {
        return Err(Status::not_found(&group_resource, &info.name).into());
    }
    let verb = info.verb.as_str();
    let known = match info.subresource.as_str() {
        "" => !verb.is_empty(),
        _ => matches!(verb, "get" | "update" | "patch"),
    };
    if !known {
        return Err(Status::method_not_supported(&group_resource, verb).into());
    }
    if info.name.is_empty() && matches!(verb, "update" | "patch") {
        return Err(ApiError::bad_request("name must be provided"));
    }
    Ok(())
}
