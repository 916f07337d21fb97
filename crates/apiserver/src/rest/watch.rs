//! `watch`: a stream of changes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use allot_apimachinery::Status;
use allot_schema::types::Struct;
use allot_store::{Entry, Error as StoreError, Event, EventKind, ListOptions, Watcher};
use bytes::Bytes;
use http::{HeaderValue, Response};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::read::{validate_options, watched_version};
use crate::body::Body;
use crate::context::{Call, Core};
use crate::conversion;
use crate::error::Result;
use crate::limits::{BURST, CHUNK};
use crate::managed::Known;
use crate::negotiate::{Encoding, MediaType, Shape};
use crate::numbers::parse_int;
use crate::registry::Resource;
use crate::select::Selection;
use crate::table;
use crate::view::View;

mod socket;

pub(super) use socket::Socket;

/// How often an idle watch that allows it gets a bookmark.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Marks the bookmark that ends the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

pub(super) async fn watch(call: Call<'_>) -> Result<Response<Body>> {
    if call.media.encoding == Encoding::Yaml {
        return Err(crate::negotiate::no_stream());
    }
    let query = &call.request.query;
    let seconds = query.text("timeoutSeconds").map(parse_int).transpose()?;
    validate_options(query, true)?;
    let selection = Selection::parse(&call.resource, &call.version, query)?
        .sharded(&call.core.config.features, query)?;
    let from = match query.text("resourceVersion") {
        None => 0,
        Some(text) => watched_version(text)?,
    };
    let send_initial = match query.get("sendInitialEvents") {
        Some(value) => !matches!(value, "" | "false" | "0"),
        None => from == 0,
    };
    // A watch with initial events ends them with a bookmark, also if the client did not request bookmarks.
    let streaming_list = send_initial;
    let bookmarks = query.flag("allowWatchBookmarks");
    let prefix = call.list_prefix(&selection);
    let backend = &call.core.backend;
    let mut initial: Vec<Arc<Entry>> = Vec::new();
    let mut first_error = None;
    let watcher = if send_initial {
        let options = ListOptions {
            prefix: &prefix,
            ..ListOptions::default()
        };
        let page = backend.list(&call.resource.collection, options).await?;
        initial = call.all_converted(page.entries).await?;
        initial.retain(|entry| call.selects(&selection, entry));
        Some(backend.watch(&call.resource.collection, &prefix, page.revision)?)
    } else {
        let start = if from == 0 { backend.revision() } else { from };
        match backend.watch(&call.resource.collection, &prefix, start) {
            Ok(watcher) => Some(watcher),
            // A version from the future is waited for.
            Err(StoreError::Future { .. }) => None,
            Err(StoreError::Expired { requested, oldest }) => {
                let status =
                    Status::expired(format!("too old resource version: {requested} ({oldest})"));
                first_error = Some(status.to_json());
                None
            }
            Err(error) => return Err(error.into()),
        }
    };
    let shortest = call.core.config.limits.min_request_timeout;
    let life = match seconds {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds.unsigned_abs()),
        // Random, so that clients do not all reconnect at the same time.
        _ => shortest.mul_f64(rand::random_range(1.0..2.0)),
    };
    let stream = Stream {
        core: call.core.clone(),
        resource: call.resource.clone(),
        version: call.version.clone(),
        name: call.name().to_owned(),
        selection,
        media: call.media,
        table: call.table_options(),
        table_started: false,
        watcher,
        collection: call.resource.collection.clone(),
        prefix,
        from,
        initial: initial.into(),
        pending: VecDeque::new(),
        bookmark_due: false,
        ending: false,
        burst: 0,
        initial_end: streaming_list && bookmarks,
        bookmarks,
        next_bookmark: Instant::now() + BOOKMARK_EVERY.min(first_bookmark(life)),
        deadline: Instant::now() + life,
        first_error,
        done: false,
        _open: call.core.metrics.open_watch(),
    };
    let chunks = futures::stream::unfold(stream, |mut stream| async move {
        let chunk = stream.next().await?;
        Some((Ok(chunk), stream))
    });
    let mut response = Response::new(Body::stream(chunks));
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        HeaderValue::from_static(call.media.stream_type()),
    );
    Ok(response)
}

/// Waits until the definition of a resource changes. Built-in resources do not.
async fn ended(resource: &Resource) {
    match &resource.custom {
        Some(custom) => custom.ended().cancelled().await,
        None => std::future::pending().await,
    }
}

/// The time of the first bookmark of an idle watch with this lifetime: the client needs it to resume.
fn first_bookmark(life: Duration) -> Duration {
    const BEFORE_END: Duration = Duration::from_secs(2);
    life.saturating_sub(BEFORE_END).max(life / 2)
}

/// The state of one watch.
struct Stream {
    core: Arc<Core>,
    resource: Arc<Resource>,
    version: String,
    name: String,
    selection: Selection,
    media: MediaType,
    table: table::Options,
    /// Column definitions have been sent.
    table_started: bool,
    watcher: Option<Watcher>,
    collection: Arc<str>,
    prefix: String,
    from: u64,
    initial: VecDeque<Arc<Entry>>,
    /// Changes that have happened and are not written yet.
    pending: VecDeque<Arc<Event>>,
    /// A bookmark follows the pending changes.
    bookmark_due: bool,
    /// The watch ends after the pending changes.
    ending: bool,
    /// Pieces since others had their turn.
    burst: usize,
    initial_end: bool,
    bookmarks: bool,
    next_bookmark: Instant,
    deadline: Instant,
    first_error: Option<Value>,
    done: bool,
    _open: crate::metrics::OpenWatch,
}

impl Stream {
    /// The next bytes; `None` ends the watch.
    async fn next(&mut self) -> Option<Bytes> {
        if self.done {
            return None;
        }
        if let Some(status) = self.first_error.take() {
            self.done = true;
            return Some(self.frame("ERROR", &status));
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
                        Err(error) => {
                            self.done = true;
                            return Some(self.frame("ERROR", &error.0.to_json()));
                        }
                    },
                    Err(StoreError::Expired { requested, oldest }) => {
                        // Too slow: the client has to list again.
                        self.done = true;
                        let status = Status::expired(format!("too old resource version: {requested} ({oldest})"));
                        return Some(self.frame("ERROR", &status.to_json()));
                    }
                    Err(_) => return None,
                },
                () = tokio::time::sleep_until(self.next_bookmark), if self.bookmarks => {
                    self.next_bookmark = Instant::now() + BOOKMARK_EVERY;
                    // Catches up first, so that the bookmark covers everything before it.
                    if let Ok(events) = self.watcher.as_mut()?.poll_changes()
                        && let Ok(events) = self.converted(events).await
                    {
                        self.pending.extend(events);
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
                table::table(&self.view(), &[object], None, self.media.shape, options)
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
