//! A backend that tells when what is installed may have changed.

use std::sync::Arc;

use allot_store::{Backend, Entry, Error, ListOptions, Page, Watcher, Write};
use futures::future::BoxFuture;

use super::Dynamic;

/// The group of policies, bindings and webhook configurations.
pub(super) const GROUP: &str = "admissionregistration.k8s.io";

/// The backend, with an eye on the writes that change `dynamic`.
pub(crate) fn watched(inner: Arc<dyn Backend>, dynamic: Arc<Dynamic>) -> Arc<dyn Backend> {
    Arc::new(Watched { inner, dynamic })
}

struct Watched {
    inner: Arc<dyn Backend>,
    dynamic: Arc<Dynamic>,
}

impl Backend for Watched {
    fn revision(&self) -> u64 {
        self.inner.revision()
    }

    fn get<'a>(
        &'a self,
        collection: &'a str,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<Entry>>, Error>> {
        self.inner.get(collection, key)
    }

    fn list<'a>(
        &'a self,
        collection: &'a str,
        options: ListOptions<'a>,
    ) -> BoxFuture<'a, Result<Page, Error>> {
        self.inner.list(collection, options)
    }

    fn commit(&self, write: Write) -> BoxFuture<'_, Result<Arc<Entry>, Error>> {
        if !write.collection.starts_with(GROUP) {
            return self.inner.commit(write);
        }
        Box::pin(async move {
            let outcome = self.inner.commit(write).await;
            // Before the client hears of it, so that its next request meets what it has installed.
            self.dynamic.changed();
            outcome
        })
    }

    fn watch(&self, collection: &str, prefix: &str, from: u64) -> Result<Watcher, Error> {
        self.inner.watch(collection, prefix, from)
    }

    fn counts(&self) -> Vec<(Arc<str>, usize)> {
        self.inner.counts()
    }
}
