//! Lists and watches, with the same code for all kinds: objects are text here.

use std::borrow::Cow;
use std::pin::pin;
use std::time::Duration;

use futures::FutureExt;
use http::HeaderValue;
use http::header::ACCEPT_ENCODING;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ListMeta, Status};
use kube::Error;
use kube::api::{ListParams, WatchParams};
use kube::core::Request;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::{Collection, Keep, everything};
use crate::wire;

/// The number of objects in a page of a list.
const PAGE: u32 = 500;
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(10);
/// A shorter round (a watch, perhaps with a list before it) is brief. From the second brief round in a row on there is a pause:
/// a server that ends every watch at once, or always returns 410, must not get requests without one.
const BRIEF: Duration = Duration::from_secs(1);
/// After this time a watch is closed if the server does not end it: twice the requested `timeoutSeconds` (kube's 290 s).
const WATCH_LIMIT: Duration = Duration::from_secs(600);
/// The largest number of pages of a list: five million objects.
const MOST_PAGES: u32 = 10_000;
/// The number of rejected lists after which an optional kind counts as empty: a server that starts rejects requests for
/// a moment that it permits afterwards.
const REFUSALS: u32 = 4;

/// The receiver of the objects.
pub(super) trait Sink: Send {
    /// The fields that are decoded, if objects may be in protobuf.
    fn protobuf(&self) -> Option<Keep>;

    /// A list begins; objects of an incomplete earlier list are dropped.
    fn begin(&mut self);

    /// The next objects of the list.
    fn page(&mut self, items: &[&RawValue]) -> serde_json::Result<()>;

    /// The list is complete, at this version. Returns false to stop the reflector.
    fn listed(&mut self, version: String) -> bool;

    /// An object was added, changed or deleted; sets `version` to the object's. Returns false to stop the reflector.
    fn changed(
        &mut self,
        deleted: bool,
        object: &str,
        version: &mut String,
    ) -> serde_json::Result<bool>;
}

#[derive(Deserialize)]
pub(crate) struct List<'a> {
    pub(crate) metadata: ListMeta,
    /// An empty list in protobuf has no such member.
    #[serde(borrow, default)]
    pub(crate) items: Vec<&'a RawValue>,
}

/// A line of a watch.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// The type and object of a watch event in the layout that servers write, located without parsing the object first. For
/// other input the object has trailing text or is truncated, so that parsing it as JSON fails.
fn parts(line: &str) -> Option<(&str, &str)> {
    let (kind, rest) = line.strip_prefix("{\"type\":\"")?.split_once('"')?;
    let object = rest.strip_prefix(",\"object\":")?;
    Some((kind, object.trim_end().strip_suffix('}')?))
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: ListMeta,
}

/// The next step after a list or a watch.
enum Next {
    /// The receiver stopped.
    End,
    /// With a watch from this version.
    Watch(String),
    /// With a new list.
    List,
}

/// Watches until `shutdown`.
pub(super) async fn follow(of: &Collection, shutdown: &CancellationToken, sink: &mut dyn Sink) {
    let mut next = Next::List;
    let mut failures = 0u32;
    let mut brief_rounds = 0u32;
    let mut is_known = false;
    while !shutdown.is_cancelled() {
        let mut long = pin!(tokio::time::sleep(BRIEF));
        let step = async {
            let from = match std::mem::replace(&mut next, Next::List) {
                Next::End => return Ok(Next::End),
                Next::Watch(from) => from,
                Next::List => {
                    let version = list(of, sink).await?;
                    is_known = true;
                    if !sink.listed(version.clone()) {
                        return Ok(Next::End);
                    }
                    version
                }
            };
            watch(of, from, sink).await
        };
        let outcome = tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            outcome = step => outcome,
        };
        let pause = match outcome {
            Ok(Next::End) => return,
            Ok(then) => {
                failures = 0;
                next = then;
                brief_rounds = match long.as_mut().now_or_never() {
                    None => brief_rounds.saturating_add(1),
                    Some(()) => 0,
                };
                match brief_rounds {
                    0 | 1 => continue,
                    more => pause_after(more - 1),
                }
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                let pause = pause_after(failures);
                let why = crate::api_message(&error);
                tracing::warn!(url = of.url, error = %why, ?pause, "watch failed");
                let is_refused = matches!(&error, Error::Api(status) if status.code == 403);
                if of.optional && is_refused && !is_known && failures >= REFUSALS {
                    tracing::warn!(url = of.url, "not permitted: goes on as if there were none");
                    is_known = true;
                    sink.begin();
                    if !sink.listed(String::new()) {
                        return;
                    }
                }
                pause
            }
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// The pause after a number of failures in a row.
fn pause_after(failures: u32) -> Duration {
    let pause = RETRY_MIN.saturating_mul(1 << failures.min(7));
    pause.min(RETRY_MAX)
}

/// Lists all objects. Returns their resource version.
async fn list(of: &Collection, sink: &mut dyn Sink) -> Result<String, Error> {
    let mut params = ListParams {
        field_selector: of.fields.clone(),
        label_selector: of.labels.clone(),
        ..ListParams::default()
    }
    .limit(PAGE);
    sink.begin();
    // The limit of the whole list if there is one, otherwise of each page.
    let mut left = of.largest;
    for _ in 0..MOST_PAGES {
        let request = Request::new(&of.url)
            .list(&params)
            .map_err(Error::BuildRequest)?;
        let largest = left.unwrap_or(wire::LARGEST_LIST);
        let text = wire::exchange(&of.client, request, sink.protobuf(), largest).await?;
        left = left.map(|left| left.saturating_sub(text.len()));
        let page: List<'_> = serde_json::from_str(&text).map_err(Error::SerdeError)?;
        sink.page(&page.items).map_err(Error::SerdeError)?;
        match page.metadata.continue_.filter(|c| !c.is_empty()) {
            Some(next) => params.continue_token = Some(next),
            None => return Ok(page.metadata.resource_version.unwrap_or_default()),
        }
    }
    let endless = format!("a list of more than {MOST_PAGES} pages");
    Err(Error::Service(endless.into()))
}

/// Follows a watch to its end.
async fn watch(of: &Collection, from: String, sink: &mut dyn Sink) -> Result<Next, Error> {
    let params = WatchParams {
        field_selector: of.fields.clone(),
        label_selector: of.labels.clone(),
        ..WatchParams::default()
    };
    let mut version = from;
    let mut request = Request::new(&of.url)
        .watch(&params, &version)
        .map_err(Error::BuildRequest)?;
    // Some servers compress each event separately, which decoders take for the end of the stream.
    let identity = HeaderValue::from_static("identity");
    request.headers_mut().insert(ACCEPT_ENCODING, identity);
    let keep = sink.protobuf();
    let mut limit = pin!(tokio::time::sleep(WATCH_LIMIT));
    let answer = tokio::select! {
        answer = wire::send(&of.client, request, keep.is_some()) => answer,
        () = &mut limit => return Ok(Next::Watch(version)),
    };
    let answer = match answer {
        Ok(answer) => answer,
        Err(Error::Api(status)) if status.code == 410 => return Ok(Next::List),
        Err(error) => return Err(error),
    };
    let mut events = wire::Events::of(answer);
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = &mut limit => break,
        };
        let Some(event) = event else { break };
        let then = match event {
            Ok(wire::Event::Line(line)) => match of_line(of, &line, &mut version, sink) {
                // The connection broke within a line: earlier events count as well.
                Err(error) if error.is_eof() => break,
                then => then.map_err(Error::SerdeError)?,
            },
            Ok(wire::Event::Frame(message)) => {
                let (kind, object) = wire::event(&message, keep.unwrap_or(everything))?;
                apply_event(of, kind, &object, &mut version, sink).map_err(Error::SerdeError)?
            }
            Err(error) => {
                // The connection broke: earlier events count, so continue from there.
                tracing::debug!(url = of.url, %error, "watch broke off");
                break;
            }
        };
        if let Some(next) = then {
            return Ok(next);
        }
    }
    Ok(Next::Watch(version))
}

/// Passes an event in JSON to the sink. Returns the next step if the event ends the watch.
fn of_line(
    of: &Collection,
    line: &str,
    version: &mut String,
    sink: &mut dyn Sink,
) -> serde_json::Result<Option<Next>> {
    if let Some((kind @ ("ADDED" | "MODIFIED" | "DELETED"), object)) = parts(line)
        && let Ok(goes_on) = sink.changed(kind == "DELETED", object, version)
    {
        return Ok((!goes_on).then_some(Next::End));
    }
    // Any other layout, and all invalid input.
    let event: Event<'_> = serde_json::from_str(line)?;
    apply_event(of, &event.r#type, event.object.get(), version, sink)
}

/// Passes an event of the watch to the sink. Returns what to do next if the event ends the watch.
fn apply_event(
    of: &Collection,
    kind: &str,
    object: &str,
    version: &mut String,
    sink: &mut dyn Sink,
) -> serde_json::Result<Option<Next>> {
    let goes_on = match kind {
        "ADDED" | "MODIFIED" | "DELETED" => sink.changed(kind == "DELETED", object, version)?,
        "BOOKMARK" => {
            let Bookmark { metadata } = serde_json::from_str(object)?;
            if let Some(new) = metadata.resource_version {
                *version = new;
            }
            true
        }
        other => {
            let status: Status = serde_json::from_str(object).unwrap_or_default();
            tracing::debug!(
                url = of.url,
                r#type = other,
                code = status.code,
                message = status.message,
                "watch ended"
            );
            return Ok(Some(Next::List));
        }
    };
    Ok((!goes_on).then_some(Next::End))
}
