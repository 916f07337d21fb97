//! A kind with the cache of its objects.

use kube::core::ApiResource;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

use super::metadata::MetaObject;
use crate::controller::informer::Informer;

/// A kind that the server has, with the cache of its objects.
#[derive(Clone)]
pub(crate) struct Kind {
    pub resource: ApiResource,
    pub namespaced: bool,
    /// Whether a whole collection can be deleted with one request.
    pub delete_collection: bool,
    /// `None` for kinds that change often and own nothing (events).
    pub cache: Option<Informer<MetaObject>>,
    /// Ends the watch of the kind.
    pub(super) stop: CancellationToken,
}

impl Kind {
    /// A namespaced kind without objects.
    #[cfg(test)]
    pub(crate) fn for_tests(group: &str, version: &str, kind: &str, plural: &str) -> Self {
        Self {
            resource: allot_client::discovery::resource(group, version, kind, plural),
            namespaced: true,
            delete_collection: true,
            cache: None,
            stop: CancellationToken::new(),
        }
    }

    /// The API for one namespace; cluster-scoped kinds ignore it.
    pub(crate) fn api(&self, client: &Client, namespace: &str) -> Api<MetaObject> {
        if self.namespaced && !namespace.is_empty() {
            Api::namespaced_with(client.clone(), namespace, &self.resource)
        } else {
            Api::all_with(client.clone(), &self.resource)
        }
    }

    /// `deployments.apps`, `pods`.
    pub(crate) fn group_resource(&self) -> String {
        match &*self.resource.group {
            "" => self.resource.plural.clone(),
            group => format!("{}.{group}", self.resource.plural),
        }
    }
}
