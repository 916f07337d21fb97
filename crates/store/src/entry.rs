//! Stored values, values about to be stored, and changes.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;

/// A value that still lacks its revision.
///
/// The writer assigns the revision, so the caller passes the bytes before and after the position of the decimal
/// revision. The value is composed once and served as it is stored.
#[derive(Clone, PartialEq, Eq)]
pub struct Draft {
    bytes: Vec<u8>,
    revision_at: usize,
}

impl Draft {
    /// A draft from the bytes before and after the revision.
    pub fn new(head: &[u8], tail: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(head.len() + tail.len());
        bytes.extend_from_slice(head);
        bytes.extend_from_slice(tail);
        Draft {
            bytes,
            revision_at: head.len(),
        }
    }

    /// A draft from whole bytes and the offset at which the revision is to be inserted.
    ///
    /// An offset behind the end means the end.
    pub fn at(bytes: Vec<u8>, revision_at: usize) -> Self {
        let revision_at = revision_at.min(bytes.len());
        Draft { bytes, revision_at }
    }

    /// Size in bytes without the revision.
    pub fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The final value for a revision.
    pub fn complete(&self, revision: u64) -> Bytes {
        let digits = revision.to_string();
        let (head, tail) = self.bytes.split_at(self.revision_at);
        let mut out = Vec::with_capacity(self.bytes.len() + digits.len());
        out.extend_from_slice(head);
        out.extend_from_slice(digits.as_bytes());
        out.extend_from_slice(tail);
        Bytes::from(out)
    }
}

impl fmt::Debug for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Draft({})", String::from_utf8_lossy(&self.bytes))
    }
}

/// One version of an object.
pub struct Entry {
    /// Key inside the collection.
    pub key: Arc<str>,
    /// The revision that wrote this version.
    pub revision: u64,
    /// The stored bytes, revision included.
    pub value: Bytes,
    memo: OnceLock<Arc<dyn Any + Send + Sync>>,
    mark: AtomicU64,
}

impl Entry {
    /// An entry with nothing cached.
    pub fn new(key: Arc<str>, revision: u64, value: Bytes) -> Self {
        Entry {
            key,
            revision,
            value,
            memo: OnceLock::new(),
            mark: AtomicU64::new(0),
        }
    }

    /// A number that a reader has stored with this version, 0 if none: it identifies a property of the bytes and the
    /// rules that the property depends on.
    pub fn mark(&self) -> u64 {
        self.mark.load(Ordering::Relaxed)
    }

    /// Stores a number for later readers; it replaces the previous one.
    pub fn set_mark(&self, mark: u64) {
        // The bytes never change: there is nothing that must be visible before the number.
        self.mark.store(mark, Ordering::Relaxed);
    }

    /// A value derived from the entry (labels, for example), computed once and cached with it.
    ///
    /// All callers must request the same type; for another type the value is computed each time.
    pub fn memo<T: Any + Send + Sync>(&self, derive: impl FnOnce(&Entry) -> T) -> Arc<T> {
        if let Some(known) = self.memo.get() {
            return match known.clone().downcast::<T>() {
                Ok(value) => value,
                Err(_) => Arc::new(derive(self)),
            };
        }
        let value = Arc::new(derive(self));
        // A concurrent caller may have been faster; both values are equal.
        let _ = self.memo.set(value.clone());
        value
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Entry({} @{} {})",
            self.key,
            self.revision,
            String::from_utf8_lossy(&self.value)
        )
    }
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// The object did not exist before.
    Added,
    /// It replaced an older version.
    Modified,
    /// The object was deleted; the entry is its last state with the revision of the deletion.
    Deleted,
}

/// One change, shared by all watchers.
pub struct Event {
    /// The kind of the change.
    pub kind: EventKind,
    /// The new version, or for a deletion the last state.
    pub entry: Arc<Entry>,
    /// The version before, if there was one.
    pub previous: Option<Arc<Entry>>,
    encodings: Mutex<Encodings>,
}

/// The state of an event's cached encoding.
enum Encodings {
    /// The encoding is cached for the other watchers, which are about to use it.
    Shared(Vec<(u64, Bytes)>),
    /// The event is old: a watcher that still needs the encoding creates its own.
    Forgotten,
}

impl Event {
    /// A change without cached encodings.
    pub fn new(kind: EventKind, entry: Arc<Entry>, previous: Option<Arc<Entry>>) -> Self {
        Event {
            kind,
            entry,
            previous,
            encodings: Mutex::new(Encodings::Shared(Vec::new())),
        }
    }

    /// The revision of the change.
    pub fn revision(&self) -> u64 {
        self.entry.revision
    }

    /// An encoding of the event, created once per format and shared by all watchers while the event is among the newest
    /// of its collection.
    ///
    /// `format` is chosen by the caller; equal numbers must mean equal bytes.
    pub fn encoding(&self, format: u64, encode: impl FnOnce(&Event) -> Bytes) -> Bytes {
        let mut encodings = self.encodings.lock();
        let Encodings::Shared(known) = &mut *encodings else {
            drop(encodings);
            return encode(self);
        };
        if let Some((_, bytes)) = known.iter().find(|(known, _)| *known == format) {
            return bytes.clone();
        }
        let bytes = encode(self);
        known.push((format, bytes.clone()));
        bytes
    }

    /// Drops the shared encodings: they would double the memory of the window of changes.
    pub(crate) fn forget_encodings(&self) {
        *self.encodings.lock() = Encodings::Forgotten;
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.kind, self.entry)
    }
}
