//! Requests on resources: from a parsed path to the handler of the verb.

use std::sync::Arc;

use allot_store::Entry;
use bytes::Bytes;
use http::{Method, Response};

use crate::body::Body;
use crate::custom::conversion;
use crate::encode::View;
use crate::error::{ApiError, Result};
use crate::negotiate::{Media, Offer, Shape, negotiate};
use crate::registry::Resource;
use crate::server::{Core, Incoming};
use crate::table;

mod body;
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
        let builtin = registry.iter().any(|it| {
            it.custom.is_none()
                && it.group == info.group
                && it
                    .version(&info.version)
                    .is_some_and(|version| version.served)
        });
        if builtin {
            return Err(ApiError::no_such_path());
        }
        return Ok(crate::server::text_response(404, "404 page not found\n"));
    };
    drop(registry);
    let collection_request = info.name.is_empty();
    if info.resource != "namespaces" {
        if !resource.namespaced && !info.namespace.is_empty() {
            return Err(ApiError::no_such_path());
        }
        if resource.namespaced && info.namespace.is_empty() && !collection_request {
            return Err(ApiError::no_such_path());
        }
    }
    if let Some(version) = resource.version(&info.version) {
        request.warnings.add(version.deprecation.clone());
    }
    let verb = info.verb.as_str();
    let offer = match resource.custom {
        Some(_) => Offer::Custom,
        None => Offer::Builtin,
    };
    let media = match negotiate(&request.headers, &request.query, offer) {
        // What a workload answers is its own affair.
        Err(_) if info.subresource == "proxy" => Media::JSON,
        chosen => chosen?,
    };
    let call = Call {
        core,
        request,
        version: info.version.clone(),
        media,
        dry_run: options::dry_run(request, verb)?,
        field_validation: options::field_validation(request, verb)?,
        manager: options::manager(request, verb)?,
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
    // Only a proxy passes on what follows.
    if !info.rest.is_empty() && info.subresource != "proxy" {
        return Err(ApiError::no_such_path());
    }
    if !info.subresource.is_empty() {
        let Some(subresource) = call.resource.subresource(&info.subresource).cloned() else {
            return Err(ApiError::no_such_path());
        };
        return sub::dispatch(call, &subresource, body).await;
    }
    let across_namespaces = call.resource.namespaced && info.namespace.is_empty();
    let method = &call.request.method;
    let allowed = call.resource.verbs.iter().any(|known| known == verb)
        && !(verb == "create" && (!collection_request || across_namespaces))
        && !(across_namespaces && verb == "deletecollection")
        && !(collection_request && matches!(*method, Method::PUT | Method::PATCH));
    if !allowed {
        return Err(ApiError::method_not_allowed());
    }
    match verb {
        "create" => create::create(call, body).await,
        "get" => read::get(call).await,
        "list" => read::list(call).await,
        "watch" => watch::watch(call).await,
        "update" => update::update(call, body).await,
        "patch" => patch::patch(call, body).await,
        "delete" => delete::delete(call, body).await,
        "deletecollection" => delete::delete_collection(call, body).await,
        _ => Err(ApiError::method_not_allowed()),
    }
}
