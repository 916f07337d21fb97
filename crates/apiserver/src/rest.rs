//! Requests on resources: from a parsed path to the handler of the verb.

use std::sync::Arc;

use allot_apimachinery::Status;
use allot_store::Entry;
use bytes::Bytes;
use http::{Method, Response};

use crate::body::Body;
use crate::custom::{CustomResource, conversion};
use crate::encode::View;
use crate::error::{ApiError, Result};
use crate::negotiate::{
    Media, Offer, Shape, acceptable, acceptable_log, accepted, negotiate, not_acceptable,
};
use crate::registry::Resource;
use crate::request::RequestInfo;
use crate::server::{Core, Incoming};
use crate::table;

mod body;
mod change;
mod create;
mod delete;
mod options;
mod patch;
mod read;
mod sub;
mod update;
mod watch;

pub use options::{DeleteOptions, Preconditions, Propagation};
pub(crate) use sub::scale;

/// A request on a resource that exists, with what every handler needs.
pub struct Call<'a> {
    /// What all requests share.
    pub core: &'a Arc<Core>,
    /// The request.
    pub request: &'a Incoming,
    /// The resource.
    pub resource: Arc<Resource>,
    /// The version of the path.
    pub version: String,
    /// The representation of the answer.
    pub media: Media,
    /// Nothing is stored.
    pub dry_run: bool,
    /// How unknown and duplicate fields are treated.
    pub field_validation: FieldValidation,
    /// Who the client says it is, for `managedFields`.
    pub manager: String,
    /// The object, where it is named by the body and not by the path.
    pub object_name: Option<String>,
    /// What a webhook has converted to find out who owns which field.
    pub conversions: conversion::Known,
}

/// What happens to unknown and duplicate fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValidation {
    /// They are dropped.
    Ignore,
    /// They are dropped with a warning.
    Warn,
    /// They fail the request.
    Strict,
}

impl Call<'_> {
    /// Stored objects as this request wants to see them.
    pub fn view(&self) -> View<'_> {
        View {
            resource: &self.resource,
            version: &self.version,
        }
    }

    /// A stored entry in the version of the request, if a webhook makes it.
    ///
    /// # Errors
    /// 500 where the webhook fails.
    pub async fn converted(&self, entry: Arc<Entry>) -> Result<Arc<Entry>> {
        conversion::entry(self.core, &self.resource, &self.version, entry).await
    }

    /// As [`Call::converted`], for many.
    ///
    /// # Errors
    /// As there.
    pub async fn all_converted(&self, entries: Vec<Arc<Entry>>) -> Result<Vec<Arc<Entry>>> {
        conversion::entries(self.core, &self.resource, &self.version, entries).await
    }

    /// Repeats work with the owners of fields until it has all the conversions that it needs.
    ///
    /// # Errors
    /// 500 where the webhook fails.
    pub async fn with_conversions<T>(&self, mut work: impl FnMut() -> T) -> Result<T> {
        let mut done = work();
        for _ in 1..conversion::ROUNDS {
            if !self.conversions.learn(self.core, &self.resource).await? {
                break;
            }
            done = work();
        }
        Ok(done)
    }

    /// Namespace of the path.
    pub fn namespace(&self) -> &str {
        if self.resource.namespaced {
            &self.request.info.namespace
        } else {
            ""
        }
    }

    /// Name of the path.
    pub fn name(&self) -> &str {
        self.object_name
            .as_deref()
            .unwrap_or(&self.request.info.name)
    }

    /// Key of the object of the path.
    pub fn key(&self) -> String {
        self.resource.key(self.namespace(), self.name())
    }

    /// What tables show.
    pub fn table_options(&self) -> table::Options {
        table::Options::of(&self.request.query)
    }

    /// 400 for a name that can not stand in a path.
    ///
    /// # Errors
    /// That.
    pub fn check_path_name(&self) -> Result<()> {
        match allot_apimachinery::names::path_segment_name(self.name()).first() {
            Some(why) => Err(ApiError::bad_request(format!(
                "Name parameter invalid: {:?}: {why}",
                self.name()
            ))),
            None => Ok(()),
        }
    }

    /// 406 where metadata is asked for as one object and the answer is a list, or the other way round.
    fn check_listed(&self) -> Result<()> {
        let verb = self.request.info.verb.as_str();
        if !self.media.shape.is_metadata() || !matches!(verb, "get" | "list") {
            return Ok(());
        }
        let items = accepted(&self.request.headers);
        let Some(wanted) = items.iter().find_map(|item| item.parameter("as")) else {
            return Ok(());
        };
        let custom = self.resource.custom.is_some();
        let package = match self.resource.group.split('.').next().unwrap_or_default() {
            "" => "core",
            name => name,
        };
        let message = match (wanted, verb) {
            ("PartialObjectMetadata", "list") => {
                let found = match custom {
                    true => "unstructured.UnstructuredList".to_owned(),
                    false => format!("{package}.{}", self.resource.list_kind),
                };
                format!(
                    "you requested PartialObjectMetadata, but the requested object is a list (*{found})"
                )
            }
            ("PartialObjectMetadataList", "get") if custom => {
                return Err(ApiError::unknown("content is not a list"));
            }
            ("PartialObjectMetadataList", "get") => format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list (*{package}.{})",
                self.resource.kind
            ),
            _ => return Ok(()),
        };
        Err(Status::failure(406, "NotAcceptable", message).into())
    }

    /// 404 for the object of the path.
    pub fn not_found(&self) -> ApiError {
        allot_apimachinery::Status::not_found(&self.resource.group_resource(), self.name()).into()
    }
}

/// Answers a request on a resource path.
///
/// # Errors
/// Whatever the client did wrong, as a Status.
pub async fn dispatch(
    core: &Arc<Core>,
    request: &mut Incoming,
    body: Bytes,
) -> Result<Response<Body>> {
    let info = request.info.clone();
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
        // Paths of built-in groups answer with a Status; the rest is nobody's.
        let builtin = registry
            .iter()
            .any(|it| it.custom.is_none() && it.group == info.group);
        if builtin {
            return Err(ApiError::no_such_path());
        }
        return Ok(crate::server::text_response(404, "404 page not found\n"));
    };
    drop(registry);
    let collection_request = info.name.is_empty();
    let custom = resource.custom.is_some();
    if custom {
        if !in_scope(&resource, &info) {
            return Ok(crate::server::text_response(404, "404 page not found\n"));
        }
    } else {
        if request.method == Method::HEAD || info.verb.is_empty() {
            return Err(ApiError::method_not_allowed());
        }
        if info.resource != "namespaces"
            && (!resource.namespaced && !info.namespace.is_empty()
                || resource.namespaced && info.namespace.is_empty() && !collection_request)
        {
            return Err(ApiError::no_such_path());
        }
    }
    if let Some(definition) = &resource.custom {
        check_custom(&resource, definition, &info)?;
    } else if info.subresource.is_empty() {
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
    let verb = info.verb.as_str();
    let offer = match resource.custom {
        // Their scales are objects of a built-in kind.
        Some(_) if request.info.subresource != "scale" => Offer::Custom,
        _ => Offer::Builtin,
    };
    let media = match negotiate(&request.headers, &request.query, offer) {
        // What a workload answers is its own affair.
        Err(_) if info.subresource == "proxy" => Media::JSON,
        chosen => chosen?,
    };
    if matches!(media.shape, Shape::Table | Shape::TableV1beta1) && !has_table(&resource, &info) {
        return Err(not_acceptable());
    }
    // Only a handler tells that its version is old, not a path that has none.
    let handled = match resource.subresource(&info.subresource) {
        Some(subresource) => subresource.verbs.iter().any(|known| known == verb),
        None => info.subresource.is_empty(),
    };
    if let Some(version) = resource.version(&info.version).filter(|_| handled) {
        request.warnings.add(version.deprecation.clone());
    }
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
        conversions: conversion::Known::default(),
        resource,
    };
    if matches!(call.media.shape, Shape::Table | Shape::TableV1beta1)
        && let Some(wanted) = call.request.query.text("includeObject")
        && !matches!(wanted, "None" | "Metadata" | "Object")
    {
        return Err(ApiError::bad_request(format!(
            "Unable to convert to Table as requested: includeObject: Invalid value: {wanted:?}: must be 'Metadata', \
             'Object', 'None', or empty"
        )));
    }
    // Only a proxy passes on what follows; for custom resources upstream does not look at it.
    if !info.rest.is_empty() && info.subresource != "proxy" && !custom {
        return Err(ApiError::no_such_path());
    }
    call.check_listed()?;
    if !info.subresource.is_empty() {
        let Some(subresource) = call.resource.subresource(&info.subresource).cloned() else {
            return Err(ApiError::no_such_path());
        };
        return sub::dispatch(call, &subresource, body).await;
    }
    let across_namespaces = call.resource.namespaced && info.namespace.is_empty();
    let method = &call.request.method;
    let allowed = custom
        || call.resource.verbs.iter().any(|known| known == verb)
            && !(verb == "create" && (!collection_request || across_namespaces))
            && !(across_namespaces && verb == "deletecollection")
            // All that is asked on the old paths counts as watching.
            && !(verb == "watch" && *method != Method::GET)
            && !(collection_request && matches!(*method, Method::PUT | Method::PATCH));
    if !allowed {
        // What is only asked and not stored has no path with a name.
        let asked_only = call.resource.verbs.iter().all(|verb| verb == "create");
        return Err(match asked_only && !collection_request {
            true => ApiError::no_such_path(),
            false => ApiError::method_not_allowed(),
        });
    }
    match verb {
        "create" => create::create(call, body).await,
        "get" => read::get(call).await,
        "list" => read::list(call).await,
        "watch" => {
            let socket = watch::Socket::of(call.request, core.config.limits.stall_timeout);
            let answer = watch::watch(call).await?;
            Ok(match socket {
                Some(socket) => socket.carry(answer),
                None => answer,
            })
        }
        "update" => update::update(call, body).await,
        "patch" => patch::patch(call, body).await,
        "delete" => delete::delete(call, body).await,
        "deletecollection" => delete::delete_collection(call, body).await,
        _ => Err(ApiError::method_not_allowed()),
    }
}

/// Whether answers can be shown as a table: those that tell what has been done, or found out, cannot.
fn has_table(resource: &Resource, info: &RequestInfo) -> bool {
    match info.subresource.as_str() {
        "" => resource.verbs.iter().any(|verb| verb != "create"),
        subresource => !matches!(subresource, "token" | "eviction" | "binding"),
    }
}

/// The path of a custom resource has a namespace where it must have one and only there; upstream passes all others on, to nobody.
fn in_scope(resource: &Resource, info: &RequestInfo) -> bool {
    match (resource.namespaced, info.namespace.is_empty()) {
        (true, true) => matches!(info.verb.as_str(), "list" | "watch"),
        (namespaced, without) => namespaced != without,
    }
}

/// What upstream refuses of a custom resource before it looks at anything else: endpoints that its version does not have, and verbs.
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
