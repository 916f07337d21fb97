//! Admission: what may change or refuse a write after authorization and before storage.
//!
//! `chain` has the plugins in upstream's order. Every plugin is a function of the write.

mod accounts;
mod certificates;
mod chain;
mod declared;
mod dra;
pub(crate) mod dynamic;
mod escalation;
pub(crate) mod events;
mod groups;
pub(crate) mod image_policy;
mod images;
mod limits;
mod namespaces;
mod node;
mod owners;
pub mod plugins;
mod pods;
mod quota;
mod resize;
pub(crate) mod security;
mod selectors;
mod services;
mod storage;
mod tolerations;

use std::ops::Deref;
use std::sync::Arc;

use allot_apimachinery::Status;
use allot_apimachinery::field::ErrorList;
use allot_schema::apply::Managed;
use allot_store::ListOptions;
use serde_json::Value;

use crate::auth::Authorizer;
use crate::error::{ApiError, Result};
use crate::identity::User;
use crate::managed::Known;
use crate::object::meta;
use crate::registry::Resource;
use crate::reloads::Reloads;
use crate::request::{DeleteOptions, Incoming};
use crate::state::ServerState;

use plugins::Plugin;

pub(crate) use chain::admit_sent;
pub use chain::{mutate, validate};

/// The state of admission: the server state, the authorizer, and the configured policies and webhooks.
pub struct Admission {
    /// The state of the server.
    pub state: Arc<ServerState>,
    /// Authorizes requests.
    pub authorizer: Authorizer,
    /// The configured admission policies and webhooks.
    pub dynamic: Arc<dynamic::Dynamic>,
    /// How often pod security found what.
    pub(crate) pod_security: security::metrics::Metrics,
    /// Changes of the policies and webhooks in files.
    pub(crate) manifest_reloads: Reloads,
    /// Limits of events, and how far they are used.
    pub(crate) event_limits: events::EventLimits,
    /// The webhook that decides about images, if there is one.
    pub(crate) image_policy: Option<image_policy::ImagePolicy>,
}

impl Deref for Admission {
    type Target = ServerState;

    fn deref(&self) -> &ServerState {
        &self.state
    }
}

/// What a write is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A new object.
    Create,
    /// A change.
    Update,
    /// A removal.
    Delete,
    /// A stream to a pod.
    Connect,
}

/// A write as admission sees it.
pub struct Attributes<'a> {
    /// The operation, `Connect` for streams and proxied requests.
    pub operation: Operation,
    /// The resource of the request.
    pub resource: &'a Resource,
    /// Through which subresource, or empty.
    pub subresource: &'a str,
    /// Namespace, or empty.
    pub namespace: &'a str,
    /// The name of the object; empty for a create with `generateName`, and for a collection.
    pub name: &'a str,
    /// The requesting user.
    pub user: &'a User,
    /// The present object.
    pub old: Option<&'a Value>,
    /// Whether this is a dry run: no change is stored.
    pub dry_run: bool,
    /// The client's request; absent for a step of another request, which has been admitted as a whole.
    pub asked: Option<SentRequest<'a>>,
}

impl Attributes<'_> {
    /// The same with another name where it has none.
    fn or_named<'b>(&'b self, name: &'b str) -> Attributes<'b> {
        let name = if self.name.is_empty() {
            name
        } else {
            self.name
        };
        Attributes { name, ..*self }
    }
}

/// A request as its client has sent it, as webhooks and policies see it.
#[derive(Clone, Copy)]
pub struct SentRequest<'a> {
    /// User, path and query.
    pub(crate) request: &'a Incoming,
    /// The resource and the version of its path.
    pub(crate) resource: &'a Arc<Resource>,
    /// See `resource`.
    pub(crate) version: &'a str,
    /// The objects that a webhook converted to determine the owners of fields.
    pub(crate) conversions: &'a Known,
    /// In what form the objects are shown.
    pub(crate) shown: ObjectForm,
    /// The options of a delete.
    pub(crate) delete: Option<&'a DeleteOptions>,
    /// The field managers of the objects, which admission updates.
    pub(crate) owners: Owners<'a>,
}

/// The owners of the fields of both objects of a write, which are apart from them.
#[derive(Clone, Copy, Default)]
pub(crate) struct Owners<'a> {
    /// Of the object that is to be.
    pub(crate) new: Option<&'a Managed>,
    /// Of the present one.
    pub(crate) old: Option<&'a Managed>,
}

/// In what form an object is shown to policies and webhooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectForm {
    /// As the resource's kind.
    Object,
    /// Its replicas alone.
    Scale,
    /// As it was sent: it is no object of the resource.
    Sent,
}

/// Whether a request is this operation on a pod, and not on a subresource of it.
fn is_whole_pod(attributes: &Attributes<'_>, operation: Operation) -> bool {
    attributes.operation == operation
        && attributes.resource.is("", "pods")
        && attributes.subresource.is_empty()
}

/// Whether a request creates or changes a pod, and not a subresource of it.
fn writes_whole_pod(attributes: &Attributes<'_>) -> bool {
    is_whole_pod(attributes, Operation::Create) || is_whole_pod(attributes, Operation::Update)
}

/// Field errors that depend on more than the object: admin access, permission to change a claim's status, and
/// permission to read a policy's parameters. `found` are the errors of the object itself.
///
/// # Errors
/// Errors of the store.
pub async fn field_errors(
    core: &Admission,
    attributes: &Attributes<'_>,
    verb: &str,
    object: &Value,
    found: ErrorList,
) -> Result<ErrorList> {
    let mut errors = dra::admin_errors(core, attributes, object).await?;
    errors.extend(dra::status_errors(core, attributes, verb, object).await?);
    errors.append(found);
    errors.extend(dynamic::permission::field_errors(core, attributes, object).await?);
    let name = meta(object, "name");
    errors.append(dynamic::manifests::reserved_name(core, attributes, name));
    Ok(errors)
}

/// Whether a plugin runs, by its default and the flags.
pub(crate) fn enabled(core: &Admission, plugin: Plugin) -> bool {
    let config = &core.config;
    plugin.is_enabled(&config.enabled_admission, &config.disabled_admission)
}

/// 403 by a plugin.
fn forbidden(attributes: &Attributes<'_>, why: &str) -> ApiError {
    Status::forbidden(&attributes.resource.group_resource(), attributes.name, why).into()
}

/// The annotations of a namespace.
///
/// # Errors
/// 500 without it.
async fn annotations_of(core: &Admission, namespace: &str) -> Result<Value> {
    let parts = ["metadata.annotations"];
    let found = core.stored_parts("namespaces", namespace, &parts).await?;
    let mut found = found.ok_or_else(|| {
        let why = format!("namespace {namespace} does not exist");
        ApiError::from(Status::internal(&why))
    })?;
    Ok(found["metadata"]["annotations"].take())
}

/// All objects of a namespace in a collection.
async fn stored_in(core: &Admission, collection: &str, namespace: &str) -> Result<Vec<Value>> {
    let prefix = format!("{namespace}/");
    let page = core
        .backend
        .list(
            collection,
            ListOptions {
                prefix: &prefix,
                ..ListOptions::default()
            },
        )
        .await?;
    Ok(page
        .entries
        .iter()
        .filter_map(|entry| serde_json::from_slice(&entry.value).ok())
        .collect())
}
