//! What a handler gets: the server as a whole, and the request that it answers.

use std::ops::Deref;
use std::sync::Arc;

use allot_store::{Backend, Entry};
use tokio::sync::Semaphore;

use crate::admission::{Admission, dynamic};
use crate::auth::{Authenticator, Authorizer, Impersonation};
use crate::config::Config;
use crate::error::{ApiError, Result};
use crate::flow::FlowControl;
use crate::limits::DISCARDS;
use crate::managed::{Known, ROUNDS};
use crate::metrics::Metrics;
use crate::negotiate::Media;
use crate::registry::Resource;
use crate::request::Incoming;
use crate::state::ServerState;
use crate::view::View;
use crate::{conversion, large, openapi, services, table};

/// What all requests share. It has what [`Admission`] has, which has what [`ServerState`] has: a function names the
/// lowest of them that is enough for it.
pub struct Core {
    /// What admission works with.
    pub admission: Admission,
    /// How identities are proven.
    pub authenticator: Authenticator,
    /// How identities act as others.
    pub impersonation: Impersonation,
    /// Counts and times of requests.
    pub metrics: Metrics,
    /// Documents that have been made.
    pub openapi: openapi::Cache,
    /// Services that have been given addresses and ports and are not stored yet.
    pub(crate) services: services::Pending,
    /// How many requests are served at the same time.
    pub flow: Arc<FlowControl>,
    /// Turns of requests with large bodies.
    pub(crate) turns: Arc<Semaphore>,
    /// Bodies that are read to be thrown away.
    pub(crate) discards: Arc<Semaphore>,
}

impl Core {
    /// Over a backend, which is watched for changes of what admission and flow control go by.
    pub(crate) fn new(backend: Arc<dyn Backend>, config: Config) -> Self {
        let dynamic = Arc::default();
        let metrics = Metrics::default();
        let flow = FlowControl::new(&config.limits, metrics.flow.clone());
        let backend = dynamic::watched(backend, Arc::clone(&dynamic), Arc::clone(&flow.changes));
        Core {
            authenticator: Authenticator::new(&config),
            impersonation: Impersonation::default(),
            admission: Admission {
                authorizer: Authorizer::new(&config),
                dynamic,
                state: Arc::new(ServerState::new(backend, config)),
            },
            metrics,
            openapi: openapi::Cache::default(),
            services: services::Pending::default(),
            flow,
            turns: large::turns(),
            discards: Arc::new(Semaphore::new(DISCARDS)),
        }
    }
}

impl Deref for Core {
    type Target = Admission;

    fn deref(&self) -> &Admission {
        &self.admission
    }
}

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
    pub conversions: Known,
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
        for _ in 1..ROUNDS {
            if !conversion::learn(&self.conversions, self.core, &self.resource).await? {
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

    /// 404 for the object of the path.
    pub fn not_found(&self) -> ApiError {
        allot_apimachinery::Status::not_found(&self.resource.group_resource(), self.name()).into()
    }
}
