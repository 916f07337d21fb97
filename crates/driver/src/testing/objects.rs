//! The objects of a test's API, with what a driver can notice of an API server's rules.

use std::sync::atomic::{AtomicU64, Ordering};

use allot_apimachinery::gvk::GroupVersionResource;
use allot_apimachinery::status::Status;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

mod content;

use content::{Content, KEPT_CHANGES};

/// An object's place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) resource: GroupVersionResource,
    /// Empty for the whole cluster.
    pub(super) namespace: String,
    pub(super) name: String,
}

/// What a write is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Main,
    Status,
}

/// How a PATCH changes an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Patch {
    /// A JSON merge patch.
    Merge,
    /// A server-side apply by a field manager.
    Apply {
        /// The field manager.
        manager: String,
        /// Whether it takes fields from others.
        force: bool,
    },
}

/// A change of an object; one of the two is there.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) revision: u64,
    pub(super) key: Key,
    pub(super) before: Option<Value>,
    pub(super) after: Option<Value>,
}

/// All objects, and their last changes.
#[derive(Debug)]
pub(super) struct Objects {
    content: Mutex<Content>,
    revision: watch::Sender<u64>,
}

/// Unlike any other in this process.
pub(super) fn new_uid() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{:08x}-0000-4000-8000-{number:012x}", std::process::id())
}

impl Objects {
    pub(super) fn new() -> Self {
        Self {
            content: Mutex::new(Content::new()),
            revision: watch::channel(1).0,
        }
    }

    /// Changes with every change of an object.
    pub(super) fn revisions(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    pub(super) fn get(&self, key: &Key) -> Result<Value, Status> {
        self.content.lock().get(key)
    }

    /// Objects of a resource, in one namespace or in all, and the revision of that list.
    pub(super) fn list(
        &self,
        resource: &GroupVersionResource,
        namespace: &str,
    ) -> (Vec<Value>, u64) {
        let content = self.content.lock();
        let objects = content.objects.iter().filter(|(key, _)| {
            key.resource == *resource && (namespace.is_empty() || key.namespace == namespace)
        });
        let objects = objects.map(|(_, object)| object.clone()).collect();
        (objects, content.revision)
    }

    /// Changes after a revision.
    ///
    /// # Errors
    /// Some of them are not kept any longer.
    pub(super) fn changes(&self, after: u64) -> Result<Vec<Change>, Status> {
        let content = self.content.lock();
        let oldest = content.changes.front().map(|change| change.revision);
        let forgotten = content.changes.len() == KEPT_CHANGES
            && oldest.is_some_and(|oldest| after + 1 < oldest);
        if forgotten {
            return Err(Status::failure(410, "Expired", "too old resource version"));
        }
        let newer = content.changes.iter();
        Ok(newer
            .filter(|change| change.revision > after)
            .cloned()
            .collect())
    }

    pub(super) fn create(
        &self,
        resource: &GroupVersionResource,
        namespace: &str,
        object: Value,
    ) -> Result<Value, Status> {
        self.change(|content| content.create(resource, namespace, object))
    }

    pub(super) fn replace(&self, key: &Key, object: Value, part: Part) -> Result<Value, Status> {
        self.change(|content| content.replace(key, object, part))
    }

    pub(super) fn patch(
        &self,
        key: &Key,
        patch: &Value,
        how: &Patch,
        part: Part,
    ) -> Result<Value, Status> {
        self.change(|content| content.patch(key, patch, how, part))
    }

    pub(super) fn delete(&self, key: &Key, options: &Value) -> Result<Value, Status> {
        self.change(|content| content.delete(key, options))
    }

    fn change(
        &self,
        change: impl FnOnce(&mut Content) -> Result<Value, Status>,
    ) -> Result<Value, Status> {
        let mut content = self.content.lock();
        let object = change(&mut content)?;
        self.revision.send_replace(content.revision);
        Ok(object)
    }
}
