//! A backend that signals when the admission configuration may have changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use allot_store::{Backend, Entry, Error, ListOptions, Page, Size, Watcher, Write};
use futures::future::BoxFuture;

use super::Dynamic;

/// The group of policies, bindings and webhook configurations.
pub(crate) const GROUP: &str = "admissionregistration.k8s.io";

/// Wraps the backend to observe writes that change `dynamic`, and those that change flow control, which `flows` counts.
pub(crate) fn watched(
    inner: Arc<dyn Backend>,
    dynamic: Arc<Dynamic>,
    flows: Arc<AtomicU64>,
) -> Arc<dyn Backend> {
    Arc::new(Watched {
        inner,
        dynamic,
        flows,
    })
}

struct Watched {
    inner: Arc<dyn Backend>,
    dynamic: Arc<Dynamic>,
    flows: Arc<AtomicU64>,
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
        let flows = write.collection.starts_with(crate::flow::GROUP);
        if !flows && !write.collection.starts_with(GROUP) {
            return self.inner.commit(write);
        }
        Box::pin(async move {
            let outcome = self.inner.commit(write).await;
            // Before the client gets its response, so that the new configuration applies to its next request.
            if flows {
                self.flows.fetch_add(1, Ordering::AcqRel);
            } else {
                self.dynamic.changed();
            }
            outcome
        })
    }

    fn watch(&self, collection: &str, prefix: &str, from: u64) -> Result<Watcher, Error> {
        self.inner.watch(collection, prefix, from)
    }

    fn tidy(&self, now: std::time::Instant) {
        self.inner.tidy(now);
    }

    fn counts(&self) -> Vec<(Arc<str>, usize)> {
        self.inner.counts()
    }

    fn size(&self, collection: &str) -> Size {
        self.inner.size(collection)
    }
}
