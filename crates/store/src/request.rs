//! Requests to the store, and the result of a list.

use std::sync::Arc;

use crate::entry::{Draft, Entry};

/// The precondition of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// The key must not exist.
    Absent,
    /// The key must be at exactly this revision.
    Revision(u64),
}

/// The operation of a write.
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
    /// The collection of the key: there is one for each stored resource, with its own history.
    pub collection: Arc<str>,
    /// The key inside it.
    pub key: Arc<str>,
    /// The precondition on the current state of the key.
    pub expect: Expect,
    /// The operation: a new value or a deletion.
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

    /// Marks the write as part of a deletion, such as setting the deletion timestamp or removing the last finalizer, or as
    /// a write that deletions depend on.
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

/// Which keys of a collection are listed, at which revision.
#[derive(Debug, Clone, Copy, Default)]
pub struct ListOptions<'a> {
    /// Only keys that start with this.
    pub prefix: &'a str,
    /// Only keys after this one (for paging).
    pub after: Option<&'a str>,
    /// The revision to list; the current one if absent.
    pub at: Option<u64>,
    /// Maximum number of entries; 0 means all.
    pub limit: usize,
}

/// The current size of a collection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// The number of its entries.
    pub entries: usize,
    /// The sum of the lengths of their values, in bytes.
    pub bytes: usize,
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
