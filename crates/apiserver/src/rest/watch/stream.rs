//! The stream of one watch: initial events, changes, bookmarks, and their encoding.

use std::collections::VecDeque;
use std::sync::Arc;

use allot_apimachinery::Status;
use allot_schema::types::Struct;
use allot_store::{Entry, Error as StoreError, Event, EventKind, Watcher};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{BOOKMARK_EVERY, INITIAL_EVENTS_END, ended};
use crate::context::Core;
use crate::conversion;
use crate::error::Result;
use crate::limits::{BURST, CHUNK};
use crate::managed::Known;
use crate::negotiate::{Encoding, MediaType, Shape};
use crate::registry::Resource;
use crate::select::Selection;
use crate::table;
use crate::view::View;

/// The state of one watch.
pub(super) struct Stream {
    pub(super) core: Arc<Core>,
    pub(super) resource: Arc<Resource>,
    pub(super) version: String,
    pub(super) name: String,
    pub(super) selection: Selection,
    pub(super) media: MediaType,
    pub(super) table: table::Options,
    /// Column definitions have been sent.
    pub(super) table_started: bool,
    pub(super) watcher: Option<Watcher>,
    pub(super) collection: Arc<str>,
    pub(super) prefix: String,
    pub(super) from: u64,
    pub(super) initial: VecDeque<Arc<Entry>>,
    /// Changes that have happened and are not written yet.
    pub(super) pending: VecDeque<Arc<Event>>,
    /// A bookmark follows the pending changes.
    pub(super) bookmark_due: bool,
    /// The watch ends after the pending changes.
    pub(super) ending: bool,
    /// Pieces since others had their turn.
    pub(super) burst: usize,
    pub(super) initial_end: bool,
    pub(super) bookmarks: bool,
    pub(super) next_bookmark: Instant,
    pub(super) deadline: Instant,
    pub(super) first_error: Option<Value>,
    pub(super) done: bool,
    pub(super) _open: crate::metrics::Open,
}

impl Stream {
    /// The next bytes; `None` ends the watch.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        if self.done {
            return None;
        }
        if let Some(status) = self.first_error.take() {
            return Some(self.fail(&status));
        }
        if let Some(piece) = self.initial_piece().await {
            return Some(piece);
        }
        if std::mem::take(&mut self.initial_end) {
            return Some(self.bookmark(true));
        }
        if self.watcher.is_none() && !self.wait_for_future().await {
            return None;
        }
        loop {
            if let Some(piece) = self.pending_piece() {
                return Some(piece);
            }
            if std::mem::take(&mut self.bookmark_due) {
                return Some(self.bookmark(false));
            }
            if self.ending {
                self.done = true;
                return None;
            }
            let watcher = self.watcher.as_mut()?;
            tokio::select! {
                changes = watcher.changes() => match changes {
                    Ok(events) => match self.converted(events).await {
                        Ok(events) => self.pending.extend(events),
                        Err(error) => return Some(self.fail(&error.0.to_json())),
                    },
                    Err(StoreError::Expired { requested, oldest }) => {
                        // Too slow: the client has to list again.
                        let status = Status::expired(format!("too old resource version: {requested} ({oldest})"));
                        return Some(self.fail(&status.to_json()));
                    }
                    Err(_) => return None,
                },
                () = tokio::time::sleep_until(self.next_bookmark), if self.bookmarks => {
                    self.next_bookmark = Instant::now() + BOOKMARK_EVERY;
                    // Catches up first, so that the bookmark covers everything before it.
                    if let Ok(events) = self.watcher.as_mut()?.poll_changes() {
                        match self.converted(events).await {
                            Ok(events) => self.pending.extend(events),
                            // The watcher has passed these events: the next bookmark would hide them from the client.
                            Err(error) => return Some(self.fail(&error.0.to_json())),
                        }
                        self.bookmark_due = true;
                    }
                }
                () = ended(&self.resource) => {
                    // Events from before the end are still sent.
                    self.ending = true;
                    let events = self.watcher.as_mut()?.poll_changes().ok()?;
                    let events = self.converted(events).await.ok()?;
                    self.pending.extend(events);
                }
                () = tokio::time::sleep_until(self.deadline) => return None,
                () = self.core.shutdown.cancelled() => return None,
            }
        }
    }

    /// The event with which the watch ends because of an error.
    fn fail(&mut self, status: &Value) -> Bytes {
        self.done = true;
        self.frame("ERROR", status)
    }

    /// Waits until the store reaches the version that the client requested; false if the watch ends before.
    async fn wait_for_future(&mut self) -> bool {
        let Ok(mut changes) =
            self.core
                .backend
                .watch(&self.collection, &self.prefix, self.core.backend.revision())
        else {
            return false;
        };
        loop {
            if let Ok(watcher) = self
                .core
                .backend
                .watch(&self.collection, &self.prefix, self.from)
            {
                self.watcher = Some(watcher);
                return true;
            }
            tokio::select! {
                changed = changes.changes() => if changed.is_err() { return false },
                () = ended(&self.resource) => return false,
                () = tokio::time::sleep_until(self.deadline) => return false,
                () = self.core.shutdown.cancelled() => return false,
            }
        }
    }

    /// What happened, as objects in the version of the watch.
    async fn converted(&self, events: Vec<Arc<Event>>) -> Result<Vec<Arc<Event>>> {
        conversion::events(&self.core, &self.resource, &self.version, events).await
    }

    fn selects(&self, entry: &Entry) -> bool {
        (self.name.is_empty() || entry.key.rsplit('/').next() == Some(&self.name))
            && self.selection.matches(&self.resource, entry)
    }

    /// Some of the initial events; the bookmark that ends them comes with the last.
    async fn initial_piece(&mut self) -> Option<Bytes> {
        if self.initial.is_empty() {
            return None;
        }
        self.burst += 1;
        if self.burst == BURST {
            self.burst = 0;
            tokio::task::yield_now().await;
        }
        let mut out = Vec::new();
        while out.len() < CHUNK
            && let Some(entry) = self.initial.pop_front()
        {
            self.write_state(&mut out, "ADDED", &entry);
        }
        if self.initial.is_empty() && std::mem::take(&mut self.initial_end) {
            out.extend_from_slice(&self.bookmark(true));
        }
        Some(out.into())
    }

    /// Some of the pending events. They stay in the queue shared by all watches: a slow client must not have its own
    /// copy.
    fn pending_piece(&mut self) -> Option<Bytes> {
        let mut parts = Vec::new();
        let mut size = 0;
        while size < CHUNK
            && let Some(event) = self.pending.pop_front()
        {
            let part = self.event(&event).filter(|part| !part.is_empty());
            size += part.as_ref().map_or(0, Bytes::len);
            parts.extend(part);
        }
        (!parts.is_empty()).then(|| join(parts))
    }

    /// What a change means to this watch: objects enter and leave the selection.
    fn event(&mut self, event: &Event) -> Option<Bytes> {
        let now = event.kind != EventKind::Deleted && self.selects(&event.entry);
        let before = event
            .previous
            .as_ref()
            .is_some_and(|previous| self.selects(previous));
        let kind = match (before, now) {
            (false, false) => return None,
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
        };
        if kind == "DELETED" && event.kind != EventKind::Deleted {
            // It left the selection: its state before, at the version of the change.
            let previous = event.previous.as_ref()?;
            let mut object = self.view().object(previous).ok()?;
            object["metadata"]["resourceVersion"] = event.revision().to_string().into();
            let value = self.shape(object);
            return Some(
                self.view()
                    .with_texts(previous, || self.frame(kind, &value)),
            );
        }
        if self.media == MediaType::JSON {
            let format = format_number(kind, &self.resource.group, &self.version);
            let view = self.view();
            return Some(event.encoding(format, |event| encode_state(&view, kind, &event.entry)));
        }
        let mut out = Vec::new();
        self.write_state(&mut out, kind, &event.entry);
        Some(out.into())
    }

    fn write_state(&mut self, out: &mut Vec<u8>, kind: &str, entry: &Entry) {
        if self.media == MediaType::JSON {
            out.extend_from_slice(&encode_state(&self.view(), kind, entry));
            return;
        }
        let Ok(object) = self.view().object(entry) else {
            return;
        };
        let value = self.shape(object);
        out.extend_from_slice(&self.view().with_texts(entry, || self.frame(kind, &value)));
    }

    fn view(&self) -> View<'_> {
        View {
            resource: &self.resource,
            version: &self.version,
        }
    }

    fn shape(&mut self, object: Value) -> Value {
        match self.media.shape {
            Shape::Whole => object,
            shape @ (Shape::Metadata | Shape::MetadataV1beta1) => {
                self.view().metadata_only(object, shape)
            }
            Shape::Table | Shape::TableV1beta1 => {
                let mut options = self.table;
                // Only the first table of a stream names its columns.
                options.headers &= !std::mem::replace(&mut self.table_started, true);
                table::table(&self.view(), vec![object], None, self.media.shape, options)
            }
        }
    }

    fn bookmark(&mut self, initial_end: bool) -> Bytes {
        let revision = self.watcher.as_ref().map_or(self.from, Watcher::position);
        let mut object = {
            let nothing = Known::default();
            let (resource, version) = (&self.resource, self.version.as_str());
            crate::managed::with_manager(resource, version, "", &nothing, |_, empty| empty())
        };
        object["metadata"] = json!({"resourceVersion": revision.to_string()});
        if initial_end {
            object["metadata"]["annotations"] = json!({INITIAL_EVENTS_END: "true"});
        }
        (self.resource.rules.fill_bookmark)(&mut object);
        let shaped = self.shape(object);
        self.frame("BOOKMARK", &shaped)
    }

    /// An event in the client's encoding.
    fn frame(&self, kind: &str, object: &Value) -> Bytes {
        if self.media.encoding == Encoding::Protobuf {
            // Only what has such a form is served in it.
            return crate::protobuf::frame(kind, object)
                .unwrap_or_default()
                .into();
        }
        let schema = match self.media.shape {
            Shape::Whole if object["kind"] == self.resource.kind.as_str() => {
                self.resource.schema(&self.version)
            }
            _ => None,
        };
        frame(kind, object, schema)
    }
}

/// One piece as it is, which all watchers share; several in one.
fn join(mut parts: Vec<Bytes>) -> Bytes {
    match parts.as_mut_slice() {
        [one] => std::mem::take(one),
        many => many.concat().into(),
    }
}

/// Equal for equal bytes: kind of event, group (events are in two) and version.
fn format_number(kind: &str, group: &str, version: &str) -> u64 {
    use std::hash::{BuildHasher, BuildHasherDefault};
    BuildHasherDefault::<rustc_hash::FxHasher>::default().hash_one((kind, group, version))
}

fn encode_state(view: &View<'_>, kind: &str, entry: &Entry) -> Bytes {
    let mut out = Vec::with_capacity(entry.value.len() + 128);
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    if view.write_json(&mut out, entry).is_err() {
        return Bytes::new();
    }
    out.extend_from_slice(b"}\n");
    out.into()
}

/// An event in JSON; an object of a type has its fields in the order of the type.
fn frame(kind: &str, object: &Value, schema: Option<&'static Struct>) -> Bytes {
    let mut out = format!("{{\"type\":\"{kind}\",\"object\":").into_bytes();
    match schema {
        Some(schema) => crate::ordered::object(&mut out, object, Some(schema)),
        None => crate::ordered::plain(&mut out, object),
    }
    out.extend_from_slice(b"}\n");
    out.into()
}
