//! One stream with the changes of all kinds that the page requested.
//!
//! A browser opens six connections to a server over HTTP/1.1, all of its tabs together: a watch for each kind would use
//! them up. Each line of the stream is a JSON object with `kind` and `type`; an empty line is a keep-alive.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::StatusCode;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;

use crate::Dashboard;
use crate::answer::{Answer, with_body};
use crate::kind::Kind;
use crate::query::{Query, mark, name};
use crate::upstream::{Failed, watch};

/// Limit of queued lines for a slow page. At the limit, reading from the API server stops.
const WAITING: usize = 16;
/// A page that reads nothing for this long is disconnected.
const STALLED: Duration = Duration::from_secs(60);
/// An empty line is sent so often.
const BEAT: Duration = Duration::from_secs(15);
/// Longest life of a stream; the page opens the next one where this one ended.
const LONGEST: Duration = Duration::from_secs(900);
/// A watch that ends without news is begun again so many times in a row.
const ATTEMPTS: u32 = 5;
/// The pause before that, and twice as long each time.
const PAUSE: Duration = Duration::from_millis(500);
/// The API server ends a watch after so many seconds.
const SECONDS: u64 = 300;

/// The watches, with their start.
struct WatchRequest {
    kind: Kind,
    namespace: Option<String>,
    mark: String,
}

/// Answers `api/watch`: a parameter for each kind, its value the resource version to start from.
///
/// # Errors
/// The query is wrong, or there are too many streams.
pub fn answer(
    dashboard: &Arc<Dashboard>,
    client: &kube::Client,
    query: Option<&str>,
) -> Result<Answer, Failed> {
    let wanted = wanted(query).map_err(Failed::Asked)?;
    let permit = dashboard.streams.clone().try_acquire_owned();
    let permit = permit.map_err(|_| Failed::Busy)?;
    let (sender, receiver) = channel(WAITING);
    let mut watches = JoinSet::new();
    for wanted in wanted {
        let (dashboard, client) = (dashboard.clone(), client.clone());
        let lines = sender.clone();
        watches.spawn(async move { follow(&dashboard, &client, wanted, &lines).await });
    }
    tokio::spawn(async move {
        let _permit = permit;
        // The watches end with this task.
        let beats = async {
            while put(&sender, "\n").await {
                tokio::time::sleep(BEAT).await;
            }
        };
        tokio::select! {
            () = beats => {}
            () = sender.closed() => {}
            () = tokio::time::sleep(LONGEST) => {}
            // A watch without permission is reported; the others continue.
            () = async { while watches.join_next().await.is_some() {} } => {}
        }
    });
    let frames = ReceiverStream::new(receiver).map(|line: Bytes| Ok(Frame::data(line)));
    let body = StreamBody::new(frames).boxed_unsync();
    Ok(with_body(StatusCode::OK, "application/x-ndjson", body))
}

fn wanted(query: Option<&str>) -> Result<Vec<WatchRequest>, String> {
    let mut known: Vec<String> = Vec::new();
    for kind in Kind::ALL {
        known.push(kind.name().to_owned());
        known.push(format!("{}.namespace", kind.name()));
    }
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let query = Query::read(query, &known)?;
    let mut all = Vec::new();
    for kind in Kind::ALL {
        let Some(from) = query.one(kind.name())? else {
            continue;
        };
        let within = format!("{}.namespace", kind.name());
        let namespace = query.one(&within)?.map(name).transpose()?;
        all.push(WatchRequest {
            kind,
            namespace: namespace.map(str::to_owned),
            mark: mark(from)?.to_owned(),
        });
    }
    if all.is_empty() {
        return Err("nothing to watch".to_owned());
    }
    Ok(all)
}

/// How a watch ended.
enum End {
    /// The page has disconnected, or has received the final message.
    Final,
    /// It can be begun again.
    Again,
}

/// Watches a kind until the page has disconnected or the API server rejects it.
async fn follow(
    dashboard: &Dashboard,
    client: &kube::Client,
    mut wanted: WatchRequest,
    lines: &Sender<Bytes>,
) {
    let mut attempts = 0;
    loop {
        let before = wanted.mark.clone();
        if let End::Final = once(dashboard, client, &mut wanted, lines).await {
            return;
        }
        attempts = match wanted.mark == before {
            true => attempts + 1,
            false => 0,
        };
        if attempts >= ATTEMPTS {
            send_end(wanted.kind, &Failed::Silent, lines).await;
            return;
        }
        tokio::time::sleep(PAUSE * 2u32.pow(attempts)).await;
    }
}

/// One request for a watch.
async fn once(
    dashboard: &Dashboard,
    client: &kube::Client,
    wanted: &mut WatchRequest,
    lines: &Sender<Bytes>,
) -> End {
    let kind = wanted.kind;
    // The page has listed before, so the version is known.
    let Some(version) = dashboard.versions.of(kind).first().copied() else {
        return End::Final;
    };
    let mark = utf8_percent_encode(&wanted.mark, NON_ALPHANUMERIC);
    let url = kind.url(version, wanted.namespace.as_deref());
    let url = format!(
        "{url}watch=1&allowWatchBookmarks=true&timeoutSeconds={SECONDS}&resourceVersion={mark}"
    );
    let mut events = match watch(client, &url).await {
        Ok(events) => events,
        Err(Failed::Silent | Failed::Late) => return End::Again,
        Err(error) => {
            send_end(kind, &error, lines).await;
            return End::Final;
        }
    };
    loop {
        let line = match events.next().await {
            Ok(Some(line)) => line,
            Ok(None) | Err(Failed::Silent) => return End::Again,
            Err(error) => {
                send_end(kind, &error, lines).await;
                return End::Final;
            }
        };
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let Ok(mut event) = serde_json::from_slice::<Value>(&line) else {
            send_end(kind, &Failed::Unreadable("an event is no JSON"), lines).await;
            return End::Final;
        };
        if event["type"] == "ERROR" {
            let status = &event["object"];
            let code = status["code"].as_u64().and_then(|c| u16::try_from(c).ok());
            let code = code.and_then(|code| StatusCode::from_u16(code).ok());
            let message = status["message"].as_str().unwrap_or_default().to_owned();
            let error = Failed::Status(code.unwrap_or(StatusCode::GONE), message);
            send_end(kind, &error, lines).await;
            return End::Final;
        }
        if let Some(mark) = event["object"]["metadata"]["resourceVersion"].as_str() {
            mark.clone_into(&mut wanted.mark);
        }
        if let Some(object) = event.get_mut("object") {
            kind.project(object);
        }
        let line = json!({"kind": kind.name(), "type": event["type"], "object": event["object"]});
        if !put(lines, &format!("{line}\n")).await {
            return End::Final;
        }
    }
}

/// Reports to the page that a watch has ended, and why.
async fn send_end(kind: Kind, error: &Failed, lines: &Sender<Bytes>) {
    let code = match error {
        Failed::Status(status, _) => status.as_u16(),
        other => other.status().as_u16(),
    };
    let line =
        json!({"kind": kind.name(), "type": "ERROR", "code": code, "message": error.to_string()});
    put(lines, &format!("{line}\n")).await;
}

/// Sends a line, unless the page has disconnected or reads nothing.
async fn put(lines: &Sender<Bytes>, line: &str) -> bool {
    let line = Bytes::copy_from_slice(line.as_bytes());
    matches!(
        tokio::time::timeout(STALLED, lines.send(line)).await,
        Ok(Ok(()))
    )
}
