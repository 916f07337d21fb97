//! `watch`: a stream of changes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use allot_apimachinery::Status;
use allot_store::{Entry, Error as StoreError, ListOptions};
use http::{HeaderValue, Response};
use tokio::time::Instant;

use super::read::{numbers, validate_options, watched_version};
use crate::body::Body;
use crate::context::Call;
use crate::error::{ApiError, Result};
use crate::negotiate::Encoding;
use crate::registry::Resource;
use crate::select::Selection;

mod stream;

use stream::Stream;

/// How often an idle watch that allows it gets a bookmark.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Marks the bookmark that ends the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

pub(super) async fn watch(call: Call<'_>) -> Result<Response<Body>> {
    let query = &call.request.query;
    let (seconds, _) = numbers(query)?;
    validate_options(query, true)?;
    let selection = Selection::parse(&call.resource, &call.version, query)?
        .sharded(&call.core.config.features, query)?;
    let from = match query.text("resourceVersion") {
        None => 0,
        Some(text) => watched_version(text)?,
    };
    if call.media.encoding == Encoding::Yaml {
        return Err(crate::negotiate::no_stream());
    }
    let send_initial = match query.get("sendInitialEvents") {
        Some(value) => !matches!(value, "" | "false" | "0"),
        None => from == 0,
    };
    // A watch with initial events ends them with a bookmark, also if the client did not request bookmarks.
    let streaming_list = send_initial;
    let bookmarks = query.flag("allowWatchBookmarks");
    let prefix = call.list_prefix(&selection)?;
    let backend = &call.core.backend;
    let mut initial: Vec<Arc<Entry>> = Vec::new();
    let mut first_error = None;
    let watcher = if send_initial {
        let options = ListOptions {
            prefix: &prefix,
            ..ListOptions::default()
        };
        let page = backend.list(&call.resource.collection, options).await?;
        if page.revision < from {
            // The client has seen a newer state: what there was before must not take its place.
            let ApiError(status) = ApiError::future_version(from, page.revision);
            first_error = Some(status.to_json());
            None
        } else {
            initial = call.all_converted(page.entries).await?;
            initial.retain(|entry| call.selects(&selection, entry));
            Some(backend.watch(&call.resource.collection, &prefix, page.revision)?)
        }
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
