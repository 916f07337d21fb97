//! Versioned object storage below the API server: a revision log with watch.
//!
//! Purpose: store opaque objects in named *collections* (one per API resource), assign every change the next
//! *revision*, make it durable before answering, and notify watchers. A revision is what Kubernetes calls a
//! `resourceVersion`.
//!
//! Invariants:
//! - a write is answered only after it is durable (the in-memory backend excepted);
//! - revisions grow by one per accepted write and are never reused, over all collections;
//! - readers see either all or nothing of a commit, and a list has the revision that it shows;
//! - a watcher that starts at revision *r* sees every change of its collection after *r* once, in order, or gets an
//!   error if *r* is older than the window ([`Error::Expired`]).
//!
//! It must not depend on Kubernetes objects. Values are bytes; only the position of the revision in them is known
//! ([`Draft`]).
//!
//! ```
//! use allot_store::{Backend, Draft, Embedded, Expect, Options, Write};
//!
//! let store = Embedded::in_memory(Options::default());
//! let put = Write::put("pods", "default/a", Expect::Absent, Draft::new(b"{\"rv\":\"", b"\"}"));
//! let entry = store.commit_blocking(put).unwrap();
//! assert_eq!(entry.value.as_ref(), b"{\"rv\":\"1\"}");
//! assert_eq!(store.revision(), 1);
//! ```

#![forbid(unsafe_code)]

mod backend;
mod commit;
mod disk;
mod embedded;
mod entry;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod lock;
mod maintenance;
mod options;
mod record;
mod request;
mod reserve;
mod state;
mod watch;

pub use backend::Backend;
pub use disk::Opener;
pub use embedded::Embedded;
pub use entry::{Draft, Entry, Event, EventKind};
pub use error::Error;
pub use lock::DirectoryLock;
pub use maintenance::{CheckReport, check, compact, dump};
pub use options::Options;
pub use request::{Expect, ListOptions, Operation, Page, Size, Write};
pub use reserve::Reserve;
pub use watch::Watcher;

/// Name of the database file inside a data directory.
pub const FILE_NAME: &str = "store.redb";

#[cfg(test)]
mod tests;
