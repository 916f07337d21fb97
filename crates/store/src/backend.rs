//! The interface between the API server and a store.

use std::sync::Arc;
use std::time::Instant;

use futures::future::BoxFuture;

use crate::{Entry, Error, ListOptions, Page, Size, Watcher, Write};

/// Storage as the API server needs it.
///
/// The embedded implementation is [`crate::Embedded`]; etcd could implement the same interface, which is why reads are
/// asynchronous.
pub trait Backend: Send + Sync + 'static {
    /// The newest durable revision.
    fn revision(&self) -> u64;

    /// The current version of a key.
    fn get<'a>(
        &'a self,
        collection: &'a str,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<Entry>>, Error>>;

    /// Entries in key order.
    fn list<'a>(
        &'a self,
        collection: &'a str,
        options: ListOptions<'a>,
    ) -> BoxFuture<'a, Result<Page, Error>>;

    /// Applies a write; returns when it is durable, with the new version (or the last one of a deletion).
    fn commit(&self, write: Write) -> BoxFuture<'_, Result<Arc<Entry>, Error>>;

    /// All changes of keys with `prefix` after revision `from`.
    fn watch(&self, collection: &str, prefix: &str, from: u64) -> Result<Watcher, Error>;

    /// Frees the memory of changes that are no longer recent. The server calls it at intervals.
    fn tidy(&self, _now: Instant) {}

    /// The number of entries of each collection.
    fn counts(&self) -> Vec<(Arc<str>, usize)>;

    /// The size of a collection; zero if it does not exist.
    fn size(&self, collection: &str) -> Size;
}
