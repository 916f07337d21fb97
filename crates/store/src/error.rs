//! Errors of the store.

use std::path::PathBuf;
use std::sync::Arc;

use crate::entry::Entry;

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
    /// Writing failed. The write counts as failed, but may become visible after a crash.
    #[error("the store cannot write: {0}")]
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
    #[error("cannot write the output: {0}")]
    Output(#[source] Arc<std::io::Error>),
    /// The directory or file cannot be opened.
    #[error("cannot open {}: {detail}", path.display())]
    Open {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        detail: String,
    },
}
