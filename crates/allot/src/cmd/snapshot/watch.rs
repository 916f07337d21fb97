//! Changes of a snapshot, as they happen.

use std::collections::HashMap;
use std::time::Duration;

use allot_scheduler::watched::Watched;
use futures::stream::{BoxStream, StreamExt as _};
use http::Request;
use jiff::Timestamp;
use kube::Client;
use kube::core::WatchEvent;
use serde_json::Value;

use super::Snapshot;
use super::current::current;
use super::read::path;

/// Changes within this time are handled together.
const TOGETHER: Duration = Duration::from_millis(100);

/// A list, and where its watch continues.
#[derive(Debug, Clone)]
pub struct Watching {
    url: String,
    api: String,
    kind: &'static str,
    from: String,
}

impl Watching {
    /// The objects of a kind in a version, of one namespace or of all, from a version of their list.
    pub fn new(api: &str, kind: &Watched, namespace: Option<&str>, from: String) -> Self {
        Self {
            url: path(api, kind.plural, namespace),
            api: api.to_owned(),
            kind: kind.kind,
            from,
        }
    }

    /// The kind of its objects.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    async fn stream(&self, client: &Client) -> Result<BoxStream<'static, Change>, kube::Error> {
        let Self { url, from, .. } = self;
        let url = format!("{url}?watch=true&allowWatchBookmarks=true&resourceVersion={from}");
        let request = Request::get(url).body(Vec::new());
        let request = request.map_err(kube::Error::HttpError)?;
        let events = client.request_events::<Value>(request).await?;
        let (api, kind) = (self.api.clone(), self.kind);
        Ok(events
            .filter_map(move |event| {
                let change = change(event, &api, kind);
                async move { change }
            })
            .boxed())
    }
}

enum Change {
    Set(Value),
    Gone(Value),
    /// It must be listed again.
    Lost,
}

fn change(
    event: Result<WatchEvent<Value>, kube::Error>,
    api: &str,
    kind: &'static str,
) -> Option<Change> {
    let whole = |mut object: Value| {
        object["apiVersion"] = api.into();
        object["kind"] = kind.into();
        current(object, Timestamp::now()).ok()
    };
    match event {
        Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
            Some(whole(object).map_or(Change::Lost, Change::Set))
        }
        Ok(WatchEvent::Deleted(object)) => Some(whole(object).map_or(Change::Lost, Change::Gone)),
        Ok(WatchEvent::Bookmark(_)) => None,
        Ok(WatchEvent::Error(_)) | Err(_) => Some(Change::Lost),
    }
}

/// Kind, namespace and name.
type Key = (String, String, String);

fn key(object: &Value) -> Key {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let text = |pointer: &str| text(pointer).unwrap_or_default().to_owned();
    (
        text("/kind"),
        text("/metadata/namespace"),
        text("/metadata/name"),
    )
}

/// Calls `changed` with all objects after each change of them, until a watch is lost, which happens regularly, or `changed`
/// fails.
///
/// # Errors
/// That of `changed`, and that the server refuses a watch.
pub async fn watch(
    client: &Client,
    snapshot: &mut Snapshot,
    mut changed: impl FnMut(&Snapshot) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut streams = Vec::new();
    for watching in &snapshot.watching {
        let stream = watching.stream(client).await;
        streams.push(
            stream
                .map_err(super::read::api_error)?
                .chain(futures::stream::iter([Change::Lost])),
        );
    }
    let mut changes = futures::stream::select_all(streams);
    let places = snapshot.objects.iter().enumerate();
    let mut places: HashMap<Key, usize> = places.map(|(at, o)| (key(o), at)).collect();
    while let Some(first) = changes.next().await {
        let until = tokio::time::Instant::now() + TOGETHER;
        let mut next = Some(first);
        while let Some(change) = next {
            match change {
                Change::Lost => return Ok(()),
                Change::Set(object) => match places.get(&key(&object)) {
                    Some(at) => snapshot.objects[*at] = object,
                    None => {
                        places.insert(key(&object), snapshot.objects.len());
                        snapshot.objects.push(object);
                    }
                },
                Change::Gone(object) => {
                    if let Some(at) = places.remove(&key(&object)) {
                        snapshot.objects.swap_remove(at);
                        if let Some(moved) = snapshot.objects.get(at) {
                            places.insert(key(moved), at);
                        }
                    }
                }
            }
            next = tokio::time::timeout_at(until, changes.next())
                .await
                .ok()
                .flatten();
        }
        changed(snapshot)?;
    }
    Ok(())
}
