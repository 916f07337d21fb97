//! Requests on resources: from a parsed path to the handler of the verb.

use std::sync::Arc;

use allot_apimachinery::Status;
use bytes::Bytes;
use http::{Method, Response};

use crate::body::{Body, text_response};
use crate::context::{Call, Core};
use crate::custom::CustomResource;
use crate::error::{ApiError, Result};
use crate::managed::Known;
use crate::negotiate::{MediaType, Offer, Shape, acceptable, acceptable_log, accepted, negotiate};
use crate::registry::Resource;
use crate::request::{Incoming, RequestInfo};

mod body;
mod change;
mod create;
mod delete;
mod media_type;
mod options;
mod patch;
mod read;
mod sub;
mod update;
mod watch;

impl Call<'_> {
    /// 400 for a table with a kind of objects in it that there is not.
    fn check_included(&self) -> Result<()> {
        if matches!(self.media.shape, Shape::Table | Shape::TableV1beta1)
            && let Some(wanted) = self.request.query.text("includeObject")
            && !matches!(wanted, "None" | "Metadata" | "Object")
        {
            return Err(ApiError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {wanted:?}: must be 'Metadata', \
                 'Object', 'None', or empty"
            )));
        }
        Ok(())
    }

    /// 406 if the metadata of one object is requested and the response is a list, or the reverse.
    ///
    /// As upstream this is found when there is an answer: a write has been made.
    pub(crate) fn check_shape(&self) -> Result<()> {
        self.check_included()?;
        if !self.media.shape.is_metadata() {
            return Ok(());
        }
        let list = matches!(self.request.info.verb.as_str(), "list" | "deletecollection");
        let items = accepted(&self.request.headers);
        let Some(wanted) = items.iter().find_map(|item| item.parameter("as")) else {
            return Ok(());
        };
        let custom = self.resource.custom.is_some();
        let package = body::internal_package(&self.resource.group);
        let message = match (wanted, list) {
            ("PartialObjectMetadata", true) => {
                let found = match custom {
                    true => "unstructured.UnstructuredList".to_owned(),
                    false => format!("{package}.{}", self.resource.list_kind),
                };
                format!(
                    "you requested PartialObjectMetadata, but the requested object is a list (*{found})"
                )
            }
            ("PartialObjectMetadataList", false) if custom => {
                return Err(ApiError::unknown("content is not a list"));
            }
            ("PartialObjectMetadataList", false) => format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list (*{package}.{})",
                self.resource.kind
            ),
            _ => return Ok(()),
        };
        Err(Status::failure(406, "NotAcceptable", message).into())
    }
}

/// Answers a request on a resource path.
///
/// # Errors
/// Any error of the client, as a Status.
pub async fn dispatch(
    core: &Arc<Core>,
    request: &mut Incoming,
    body: Bytes,
) -> Result<Response<Body>> {
    let info = Arc::clone(&request.info);
    if info.path.starts_with("//") {
        // Authorized as the path without the first slash, but it has no handler.
        return Ok(text_response(404, "404 page not found\n"));
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
        let builtin = registry
            .iter()
            .any(|it| it.custom.is_none() && it.group == info.group);
        if builtin {
            return Err(ApiError::no_such_path());
        }
        return Ok(text_response(404, "404 page not found\n"));
    };
    drop(registry);
    let collection_request = info.name.is_empty();
    let custom = resource.custom.is_some();
    if custom {
        if !in_scope(&resource, &info) {
            return Ok(text_response(404, "404 page not found\n"));
        }
    } else {
        let unknown =
            !info.subresource.is_empty() && resource.subresource(&info.subresource).is_none();
        // The deprecated paths that begin with `proxy` have permissions of their own, and no handler.
        if unknown || info.verb == "proxy" || !is_in_place(&resource, &info) {
            return Err(ApiError::no_such_path());
        }
        // Reviews, which are answered and not stored, have no path with a name, nor one across namespaces.
        let asked_only = resource.verbs.iter().all(|verb| verb == "create");
        let across = resource.namespaced && info.namespace.is_empty();
        if asked_only && info.subresource.is_empty() && (!collection_request || across) {
            return Err(ApiError::no_such_path());
        }
        let proxied = info.subresource == "proxy";
        let is_head = request.method == Method::HEAD && !proxied;
        // Nothing of a request without a handler is looked at, neither its options nor what it accepts.
        // A proxy passes on what browsers ask first as well; the API has no verb for that.
        let passed_on = proxied && request.method == Method::OPTIONS;
        let has_handler = match resource.subresource(&info.subresource) {
            Some(subresource) if info.rest.is_empty() => subresource.verbs.contains(&info.verb),
            _ => !info.verb.is_empty(),
        };
        if is_head || !(has_handler || passed_on) {
            return Err(ApiError::method_not_allowed());
        }
    }
    let verb = info.verb.as_str();
    // A patch in an unknown format has no handler.
    let read =
        verb != "patch" || patch::MEDIA_TYPES.contains(&&*media_type::patch_type(&request.headers));
    if custom || !info.subresource.is_empty() {
        // Decided with the subresource, or by the definition.
    } else if !is_routed(&resource, &info, &request.method) {
        return Err(ApiError::method_not_allowed());
    }
    if let Some(definition) = &resource.custom {
        // Upstream warns before it looks at the subresource.
        if let Some(version) = resource.version(&info.version) {
            request.warnings.add(version.deprecation.clone());
        }
        check_custom(&resource, definition, &info)?;
    } else if info.subresource.is_empty() {
        // The router looks at what is sent before it looks at what is accepted.
        if !read {
            return Err(patch::unknown_media_type());
        }
        acceptable(
            &request.headers,
            collection_request && request.method == Method::GET,
        )?;
    } else if resource.subresource(&info.subresource).is_some() {
        match info.subresource.as_str() {
            "log" => acceptable_log(&request.headers)?,
            "exec" | "attach" | "portforward" | "proxy" => {}
            _ => acceptable(&request.headers, false)?,
        }
    }
    // Only a handler sends a deprecation warning, not a path without one; also for an answer that is not acceptable.
    let handled = read
        && resource.custom.is_none()
        && match resource.subresource(&info.subresource) {
            Some(subresource) => subresource.verbs.iter().any(|known| known == verb),
            None => info.subresource.is_empty(),
        };
    if let Some(version) = resource.version(&info.version).filter(|_| handled) {
        request.warnings.add(version.deprecation.clone());
        if !version.removed.is_empty() {
            core.metrics.deprecated(&info, &version.removed);
        }
    }
    let offer = match resource.custom {
        // Their scales are objects of a built-in kind.
        Some(_) if request.info.subresource != "scale" => Offer::Custom,
        _ if has_table(&resource, &info) => Offer::Builtin,
        _ => Offer::Rowless,
    };
    let media = match negotiate(&request.headers, &request.query, offer) {
        // Neither a proxied response nor a stream is negotiated.
        Err(_)
            if matches!(
                info.subresource.as_str(),
                "proxy" | "exec" | "attach" | "portforward"
            ) =>
        {
            MediaType::JSON
        }
        chosen => chosen?,
    };
    let options = options::WriteOptions::of(request, verb)?;
    let call = Call {
        core,
        request,
        version: info.version.clone(),
        media,
        dry_run: options.dry_run,
        field_validation: options.field_validation,
        manager: options.manager,
        object_name: None,
        conversions: Known::default(),
        resource,
    };
    if verb == "watch" {
        call.check_included()?;
    }
    // Only a proxy passes on the rest of the path; for custom resources upstream ignores it.
    if !info.rest.is_empty() && info.subresource != "proxy" && !custom {
        return Err(ApiError::no_such_path());
    }
    if !info.subresource.is_empty() {
        let Some(subresource) = call.resource.subresource(&info.subresource).cloned() else {
            return Err(ApiError::no_such_path());
        };
        return sub::dispatch(call, &subresource, body).await;
    }
    match verb {
        "create" => create::create(call, body).await,
        "get" => read::get(call).await,
        "list" => read::list(call).await,
        "watch" => {
            let request = call.request;
            let share = core.watches.of(request)?;
            let socket = watch::Socket::of(request, core.config.limits.stall_timeout);
            let stream = socket.is_some().then(|| core.streams.of(request));
            let stream = stream.transpose()?;
            let mut answer = watch::watch(call).await?;
            answer.body_mut().hold(Box::new((share, stream)));
            let Some(socket) = socket else {
                return Ok(answer);
            };
            // The response is only the protocol upgrade, which completes immediately: the watch is measured with its
            // events.
            if let Some(watching) = core.flow.watching(request) {
                answer.body_mut().hold(Box::new(watching));
            }
            Ok(socket.carry(answer))
        }
        "update" => update::update(call, body).await,
        "patch" => patch::patch(call, body).await,
        "delete" => delete::delete(call, body).await,
        "deletecollection" => delete::delete_collection(call, body).await,
        _ => Err(ApiError::method_not_allowed()),
    }
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

/// Whether answers can be tables: results of actions and reviews cannot.
fn has_table(resource: &Resource, info: &RequestInfo) -> bool {
    match info.subresource.as_str() {
        "" => resource.verbs.iter().any(|verb| verb != "create"),
        "status" => resource.rules.status_has_table,
        // Other endpoints answer with an action, or with an object that they cannot show as a row.
        subresource => subresource == "scale",
    }
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
fn check_custom(resource: &Resource, custom: &CustomResource, info: &RequestInfo) -> Result<()> {
    let group_resource = resource.group_resource();
    let exists = match info.subresource.as_str() {
        "" => true,
        "status" => custom.has_status(&info.version),
        "scale" => custom.scale(&info.version).is_some(),
        _ => false,
    };
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
