//! The interface that the API server uses.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use futures::future::BoxFuture;

use crate::{Draft, Entry, Watcher};

/// What a write requires of the present state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// The key must not exist.
    Absent,
    /// The key must be at exactly this revision.
    Revision(u64),
}

/// What a write does.
#[derive(Debug, Clone)]
pub enum Operation {
    /// Store a new version.
    Put(Draft),
    /// Remove the key; the draft is the last state that watchers see.
    Delete(Draft),
}

/// One conditional change of one key.
#[derive(Debug, Clone)]
pub struct Write {
    /// The collection.
    pub collection: Arc<str>,
    /// The key inside it.
    pub key: Arc<str>,
    /// The condition.
    pub expect: Expect,
    /// The change.
    pub operation: Operation,
    /// Whether the write is part of a deletion, or deletions depend on it: it may use the space reserved for deletions.
    pub frees: bool,
}

impl Write {
    /// Stores a version.
    pub fn put(
        collection: impl Into<Arc<str>>,
        key: impl Into<Arc<str>>,
        expect: Expect,
        draft: Draft,
    ) -> Self {
        Write {
            collection: collection.into(),
            key: key.into(),
            expect,
            operation: Operation::Put(draft),
            frees: false,
        }
    }

    /// Marks it as part of a deletion, such as setting the deletion timestamp or removing the last finalizer, or as a
    /// write that deletions depend on.
    #[must_use]
    pub fn frees(mut self, frees: bool) -> Self {
        self.frees |= frees;
        self
    }

    /// Removes a key that is at `revision`.
    pub fn delete(
        collection: impl Into<Arc<str>>,
        key: impl Into<Arc<str>>,
        revision: u64,
        last_state: Draft,
    ) -> Self {
        Write {
            collection: collection.into(),
            key: key.into(),
            expect: Expect::Revision(revision),
            operation: Operation::Delete(last_state),
            frees: true,
        }
    }
}

/// What to list.
#[derive(Debug, Clone, Copy, Default)]
pub struct ListOptions<'a> {
    /// Only keys that start with this.
    pub prefix: &'a str,
    /// Only keys behind this one (for paging).
    pub after: Option<&'a str>,
    /// The state at this revision; now if absent.
    pub at: Option<u64>,
    /// At most so many entries; all if 0.
    pub limit: usize,
}

/// A part of a collection at one revision.
#[derive(Debug, Clone)]
pub struct Page {
    /// The entries in the order of their keys.
    pub entries: Vec<Arc<Entry>>,
    /// The revision that the page shows.
    pub revision: u64,
    /// How many entries follow the page.
    pub remaining: usize,
}

/// The reason why a request failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// A create met an existing key.
    #[error("key exists at revision {}", .0.revision)]
    Exists(Arc<Entry>),
    /// A write expected another revision.
    #[error("key is at revision {}", .0.revision)]
    Conflict(Arc<Entry>),
    /// A write expected a key that does not exist.
    #[error("no such key")]
    NotFound,
    /// The revision is older than the kept history.
    #[error("revision {requested} is older than the oldest kept one, {oldest}")]
    Expired {
        /// The requested revision.
        requested: u64,
        /// The oldest available revision.
        oldest: u64,
    },
    /// The revision has not been written yet.
    #[error("revision {requested} is newer than the current one, {current}")]
    Future {
        /// The requested revision.
        requested: u64,
        /// The newest revision.
        current: u64,
    },
    /// Writing failed; the outcome of the write is a failure now, but may show after a crash.
    #[error("the store can not write: {0}")]
    Write(Arc<str>),
    /// The store is shutting down.
    #[error("the store is closed")]
    Closed,
    /// Another process uses the directory.
    #[error("the data directory {} is in use by another process{}", path.display(), holder)]
    Locked {
        /// The directory.
        path: PathBuf,
        /// ` (pid N)` if known.
        holder: String,
    },
    /// The file is damaged.
    #[error("the store file {} is damaged: {detail}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
    /// The output cannot be written.
    #[error("can not write the output: {0}")]
    Output(#[source] Arc<std::io::Error>),
    /// The directory or file cannot be opened.
    #[error("can not open {}: {detail}", path.display())]
    Open {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        detail: String,
    },
}

/// Storage as the API server needs it.
///
/// The embedded implementation is [`crate::Embedded`]; etcd could implement the same interface, which is why reads are
/// asynchronous.
pub trait Backend: Send + Sync + 'static {
    /// The newest durable revision.
    fn revision(&self) -> u64;

    /// The present version of a key.
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

    /// Applies a write; answers when it is durable, with the new version (or the last one of a deletion).
    fn commit(&self, write: Write) -> BoxFuture<'_, Result<Arc<Entry>, Error>>;

    /// All changes of keys with `prefix` after revision `from`.
    fn watch(&self, collection: &str, prefix: &str, from: u64) -> Result<Watcher, Error>;

    /// Frees the memory of changes that are no longer recent. The server calls it at intervals.
    fn tidy(&self, _now: Instant) {}

    /// How many entries each collection holds.
    fn counts(&self) -> Vec<(Arc<str>, usize)>;
}
