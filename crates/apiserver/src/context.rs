//! The context of a handler: the shared server state and the request being handled.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use allot_store::{Backend, Entry};
use tokio::sync::Semaphore;

use crate::admission::events::EventLimits;
use crate::admission::image_policy::ImagePolicy;
use crate::admission::{Admission, dynamic};
use crate::auth::{Authenticator, Authorizer, Impersonation};
use crate::config::Config;
use crate::error::{ApiError, Result};
use crate::flow::FlowControl;
use crate::limits::{DISCARDS, SLOW_UPLOADS, streams_of};
use crate::managed::{Known, ROUNDS};
use crate::metrics::Metrics;
use crate::mount::Mount;
use crate::negotiate::MediaType;
use crate::registry::Resource;
use crate::request::Incoming;
use crate::shares::Shares;
use crate::state::ServerState;
use crate::view::View;
use crate::{conversion, large, openapi, services, table};

/// The state that all requests share. It dereferences to [`Admission`], which dereferences to [`ServerState`]: a
/// function takes the lowest layer that is sufficient.
pub struct Core {
    /// The state of admission.
    pub admission: Admission,
    /// Authenticates requests.
    pub authenticator: Authenticator,
    /// Handles user impersonation.
    pub impersonation: Impersonation,
    /// Request counters and latencies.
    pub metrics: Metrics,
    /// The generated OpenAPI documents.
    pub openapi: openapi::Cache,
    /// Services with allocated addresses and ports that are not stored yet.
    pub(crate) services: services::Pending,
    /// API Priority and Fairness: limits the number of concurrent requests.
    pub flow: Arc<FlowControl>,
    /// Limits the number of concurrent requests with large bodies.
    pub(crate) turns: Arc<Semaphore>,
    /// Requests without a seat whose clients send slowly.
    pub(crate) slow_uploads: Arc<Shares>,
    /// Open watches.
    pub(crate) watches: Arc<Shares>,
    /// Connections that are upgraded to streams.
    pub(crate) streams: Arc<Shares>,
    /// Limits the number of request bodies that are read and discarded.
    pub(crate) discards: Arc<Semaphore>,
    /// A page beside the API.
    pub(crate) mount: OnceLock<Mount>,
}

impl Core {
    /// Creates the state for a backend and watches it for changes of the configuration of admission and flow control.
    pub(crate) fn new(backend: Arc<dyn Backend>, config: Config) -> Self {
        let dynamic = Arc::default();
        let metrics = Metrics::new(&crate::server_identity::of_host(&config.host_name));
        let flow = FlowControl::new(&config.limits, metrics.flow.clone());
        let watches = Shares::new(config.limits.max_watches);
        let streams = Shares::new(streams_of(config.limits.max_connections));
        let backend = dynamic::watched(backend, Arc::clone(&dynamic), Arc::clone(&flow.changes));
        Core {
            authenticator: Authenticator::new(
                &config,
                metrics.authentication.clone(),
                metrics.token_uses.clone(),
            ),
            impersonation: Impersonation::default(),
            admission: Admission {
                authorizer: Authorizer::new(&config, metrics.authorization.clone()),
                dynamic,
                pod_security: metrics.pod_security.clone(),
                manifest_reloads: metrics.manifest_reloads.clone(),
                event_limits: EventLimits::new(&config.admission.event_limits),
                image_policy: config.admission.image_policy.as_ref().map(ImagePolicy::new),
                state: Arc::new(ServerState::new(backend, config)),
            },
            metrics,
            openapi: openapi::Cache::default(),
            services: services::Pending::default(),
            flow,
            turns: large::turns(),
            slow_uploads: Shares::new(SLOW_UPLOADS),
            watches,
            streams,
            discards: Arc::new(Semaphore::new(DISCARDS)),
            mount: OnceLock::new(),
        }
    }
}

impl Deref for Core {
    type Target = Admission;

    fn deref(&self) -> &Admission {
        &self.admission
    }
}

/// A request for an existing resource, with the data that every handler needs.
pub struct Call<'a> {
    /// The shared server state.
    pub core: &'a Arc<Core>,
    /// User, path, query and headers, as the client has sent them.
    pub request: &'a Incoming,
    /// The resource that the path names.
    pub resource: Arc<Resource>,
    /// The API version in the request path.
    pub version: String,
    /// The media type of the response.
    pub media: MediaType,
    /// Whether this is a dry run: no change is stored.
    pub dry_run: bool,
    /// How unknown and duplicate fields are treated.
    pub field_validation: FieldValidation,
    /// The field manager for `managedFields`.
    pub manager: String,
    /// The object name, if the body contains it and the path does not.
    pub object_name: Option<String>,
    /// The objects that a webhook converted to determine the owners of fields.
    pub conversions: Known,
}

/// The `fieldValidation` directive: the handling of unknown and duplicate fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValidation {
    /// The fields are dropped.
    Ignore,
    /// The fields are dropped with a warning.
    Warn,
    /// The request fails.
    Strict,
}

impl Call<'_> {
    /// The view of stored objects in the version of this request.
    pub fn view(&self) -> View<'_> {
        View {
            resource: &self.resource,
            version: &self.version,
        }
    }

    /// Converts a stored entry to the version of the request, if that requires a conversion webhook.
    ///
    /// # Errors
    /// 500 if the webhook fails.
    pub async fn converted(&self, entry: Arc<Entry>) -> Result<Arc<Entry>> {
        conversion::entry(self.core, &self.resource, &self.version, entry).await
    }

    /// Like [`Call::converted`], for several entries.
    ///
    /// # Errors
    /// As for [`Call::converted`].
    pub async fn all_converted(&self, entries: Vec<Arc<Entry>>) -> Result<Vec<Arc<Entry>>> {
        conversion::entries(self.core, &self.resource, &self.version, entries).await
    }

    /// Repeats work on field ownership until all conversions that it needs are available.
    ///
    /// # Errors
    /// 500 if the webhook fails.
    pub async fn with_conversions<T>(&self, mut work: impl FnMut() -> T) -> Result<T> {
        let mut done = work();
        for _ in 1..ROUNDS {
            if !conversion::learn(&self.conversions, self.core, &self.resource).await? {
                break;
            }
            done = work();
        }
        Ok(done)
    }

    /// The namespace in the request path.
    pub fn namespace(&self) -> &str {
        if self.resource.namespaced {
            &self.request.info.namespace
        } else {
            ""
        }
    }

    /// The object name in the request path.
    pub fn name(&self) -> &str {
        self.object_name
            .as_deref()
            .unwrap_or(&self.request.info.name)
    }

    /// The store key of the object that the request path names.
    ///
    /// # Errors
    /// Those of [`Self::check_path_namespace`].
    pub fn key(&self) -> Result<String> {
        self.check_path_namespace(self.name())?;
        Ok(self.resource.key(self.namespace(), self.name()))
    }

    /// Rejects a namespace that is a step of a path; `name` is that of an object in it, or empty.
    ///
    /// # Errors
    /// 500, as upstream's store has for its own keys.
    pub fn check_path_namespace(&self, name: &str) -> Result<()> {
        if !matches!(self.namespace(), "." | "..") {
            return Ok(());
        }
        let prefix = crate::strategy::storage_prefix(&self.resource);
        let mut key = format!("/{prefix}/{}", self.namespace());
        if !name.is_empty() {
            key = format!("{key}/{name}");
        }
        let key = allot_apimachinery::quote::quote(&key);
        Err(ApiError::unknown(format!("invalid key: {key}")))
    }

    /// The options for responses in the table format.
    pub fn table_options(&self) -> table::Options {
        table::Options::of(&self.request.query)
    }

    /// Rejects an object name that is not a valid path segment.
    ///
    /// # Errors
    /// 400 for an invalid name.
    pub fn check_path_name(&self) -> Result<()> {
        match allot_apimachinery::names::path_segment_name(self.name()).first() {
            Some(why) => Err(ApiError::bad_request(format!(
                "Name parameter invalid: {:?}: {why}",
                self.name()
            ))),
            None => Ok(()),
        }
    }

    /// The 404 error for the object that the request path names.
    pub fn not_found(&self) -> ApiError {
        let mut resource = self.resource.group_resource();
        if !self.resource.rules.missing.is_empty() {
            resource.resource = self.resource.rules.missing.to_owned();
        }
        allot_apimachinery::Status::not_found(&resource, self.name()).into()
    }
}
