//! Delivery of changes to many watchers.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::stream::{Stream, StreamExt};
use http::Method;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::connect::{self, STREAMS};
use super::objects::Kind;
use super::report::Times;
use super::{Bench, Request};

/// Precedes the number of a change in its object.
const MARK: &[u8] = b"\"bench.allot/change\":\"";
/// How long deliveries may lag behind the last change.
const PATIENCE: Duration = Duration::from_secs(10);

/// Changes one object now and then, and takes the time from sending a change until each watcher has it.
pub async fn measure(bench: &Bench) -> anyhow::Result<Value> {
    // A server of custom resources alone has no config maps.
    let kind = match bench.args.kind {
        Kind::Custom => Kind::Custom,
        _ => Kind::Configmaps,
    };
    let path = kind.path(&bench.namespace);
    let object = kind.object(0);
    let create = Request {
        method: Method::POST,
        path: path.clone(),
        content_type: "application/json",
        body: object.to_string().into_bytes(),
    };
    let created: Value = match bench.send(create).await {
        Ok(created) => serde_json::from_slice(&created)?,
        // Earlier phases may have created it. Their changes must not be seen here.
        Err(_) => {
            let patch = json!({"metadata": {"annotations": {"bench.allot/watched": "true"}}});
            let request = Request {
                method: Method::PATCH,
                path: format!("{path}/{}", Kind::name_of(0)),
                content_type: "application/merge-patch+json",
                body: patch.to_string().into_bytes(),
            };
            serde_json::from_slice(&bench.send(request).await?)?
        }
    };
    let version = created["metadata"]["resourceVersion"]
        .as_str()
        .unwrap_or_default();
    let watch = format!("{path}?watch=true&resourceVersion={version}");
    let (sender, mut received) = unbounded_channel();
    let mut watchers = tokio::task::JoinSet::new();
    let mut client = bench.connections.another().await?;
    for number in 0..bench.args.watchers {
        if number > 0 && number % STREAMS == 0 {
            client = bench.connections.another().await?;
        }
        let answer = connect::request(&client, Method::GET, &watch, "", Vec::new()).await?;
        anyhow::ensure!(
            answer.status().is_success(),
            "a watch was refused: {}",
            answer.status()
        );
        let frames = answer.into_body().into_data_stream();
        watchers.spawn(follow(frames, sender.clone()));
    }
    drop(sender);
    let mut sent: HashMap<u64, Instant> = HashMap::new();
    let start = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_millis(bench.args.interval.max(1)));
    for change in 0..bench.args.changes as u64 {
        ticks.tick().await;
        let patch =
            json!({"metadata": {"annotations": {"bench.allot/change": change.to_string()}}});
        sent.insert(change, Instant::now());
        let request = Request {
            method: Method::PATCH,
            path: format!("{path}/{}", Kind::name_of(0)),
            content_type: "application/merge-patch+json",
            body: patch.to_string().into_bytes(),
        };
        bench.send(request).await?;
    }
    let expected = bench.args.watchers * bench.args.changes;
    let mut took = Vec::with_capacity(expected);
    while took.len() < expected {
        let Ok(Some((change, at))) = tokio::time::timeout(PATIENCE, received.recv()).await else {
            break;
        };
        let sent: Option<&Instant> = sent.get(&change);
        took.extend(sent.map(|sent| at.saturating_duration_since(*sent)));
    }
    watchers.abort_all();
    let missing = expected - took.len();
    let times = Times::new(start.elapsed(), took);
    Ok(json!({
        "watchers": bench.args.watchers,
        "changes": bench.args.changes,
        "missing": missing,
        "millis": times.percentiles(),
    }))
}

/// Notes each change that a watch delivers, with the moment.
async fn follow<E>(
    frames: impl Stream<Item = Result<Bytes, E>>,
    sender: UnboundedSender<(u64, Instant)>,
) {
    let mut frames = std::pin::pin!(frames);
    let mut line: Vec<u8> = Vec::new();
    while let Some(Ok(chunk)) = frames.next().await {
        let at = Instant::now();
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(part);
            if line.ends_with(b"\n") {
                if let Some(change) = change_in(&line)
                    && sender.send((change, at)).is_err()
                {
                    return;
                }
                line.clear();
            }
        }
    }
}

/// The number of the change that an event shows.
fn change_in(line: &[u8]) -> Option<u64> {
    let start = line.windows(MARK.len()).position(|part| part == MARK)? + MARK.len();
    let digits = line[start..].split(|byte| *byte == b'"').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn changes_are_found_in_a_stream_cut_anywhere() {
        let event = br#"{"type":"MODIFIED","object":{"metadata":{"annotations":{"bench.allot/change":"17"}}}}"#;
        let mut text = event.to_vec();
        text.push(b'\n');
        text.extend_from_slice(b"{\"type\":\"BOOKMARK\"}\n");
        for cut in 0..text.len() {
            let chunks: Vec<Result<Bytes, std::io::Error>> = [&text[..cut], &text[cut..]]
                .map(|part| Ok(Bytes::copy_from_slice(part)))
                .into();
            let (sender, mut received) = unbounded_channel();
            follow(futures::stream::iter(chunks), sender).await;
            assert_eq!(
                received.recv().await.map(|(change, _)| change),
                Some(17),
                "{cut}"
            );
            assert!(received.recv().await.is_none());
        }
    }
}
