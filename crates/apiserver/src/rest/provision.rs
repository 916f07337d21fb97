//! The plugin NamespaceAutoProvision: a namespace that does not exist is made for the first object in it.

use std::pin::Pin;
use std::sync::Arc;

use allot_apimachinery::Status;
use http::{HeaderMap, Method, Uri};
use serde_json::json;

use crate::admission::{self, plugins::Plugin};
use crate::context::{Call, FieldValidation};
use crate::error::{ApiError, Result};
use crate::identity::{MASTERS, User};
use crate::managed::Known;
use crate::own_objects;
use crate::request::{Annotations, Incoming, Query, RequestInfo, Warnings};

impl Call<'_> {
    /// Makes the namespace of the request if it does not exist. As upstream, the server does so with its own rights, and
    /// policies and webhooks see it.
    ///
    /// # Errors
    /// 403 if the namespace cannot be made.
    pub(super) async fn provide_namespace(&self, name: &str) -> Result<()> {
        if !admission::enabled(self.core, Plugin::NamespaceAutoProvision)
            || self.dry_run
            || !self.resource.namespaced
            || self.namespace().is_empty()
        {
            return Ok(());
        }
        let found = self.core.backend.get("namespaces", self.namespace());
        if found.await?.is_some() {
            return Ok(());
        }
        match self.make_namespace().await {
            Err(error) if error.0.reason != "AlreadyExists" => {
                let (resource, why) = (self.resource.group_resource(), &error.0.message);
                Err(Status::forbidden(&resource, name, why).into())
            }
            _ => Ok(()),
        }
    }

    /// Creates the namespace of this request, by a request of the server's own. On the heap: the creation of an object leads here.
    fn make_namespace(&self) -> Pin<Box<dyn Future<Output = Result<()>> + Send + '_>> {
        Box::pin(async move {
            let registry = self.core.registry.load();
            let resource = registry.get("", "namespaces").cloned();
            let resource = resource.ok_or_else(|| ApiError::unknown("there are no namespaces"))?;
            let (method, uri) = (Method::POST, Uri::from_static("/api/v1/namespaces"));
            let query = Query::parse(None);
            let request = Incoming {
                info: Arc::new(RequestInfo::parse(&method, uri.path(), &query)),
                method,
                uri,
                headers: HeaderMap::new(),
                query,
                user: User::new("system:apiserver", [MASTERS]),
                upgrade: parking_lot::Mutex::new(None),
                warnings: Warnings::default(),
                annotations: Annotations::default(),
                in_process: true,
                deadline: self.request.deadline,
                peer: None,
            };
            let call = Call {
                core: self.core,
                request: &request,
                version: resource.storage_version.clone(),
                resource,
                media: self.media,
                dry_run: false,
                field_validation: FieldValidation::Ignore,
                manager: own_objects::SERVER.to_owned(),
                object_name: None,
                conversions: Known::default(),
            };
            let namespace = json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace()},
            });
            call.store_new(namespace, None).await.map(|_| ())
        })
    }
}
