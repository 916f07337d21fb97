//! `kubectl attach`: the streams of a container's own program, from now on.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::exec::{BACKLOG, failure, running, success};
use super::streams::{self, Client, Message, RequestedStreams, channel};
use super::{Body, Query, Refusal};
use crate::frames;
use crate::pods::Node;
use crate::runtime::ended;

/// How long after the end of its streams a container may end for both to be one.
const LAST: Duration = Duration::from_secs(10);

pub(super) fn serve(
    node: &Arc<Node>,
    namespace: &str,
    pod: &str,
    container: &str,
    query: &Query,
    request: Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    let mut running = running(node, namespace, pod, container)?;
    let wanted = RequestedStreams::parse(query)?;
    let node = Arc::clone(node);
    streams::upgrade(request, wanted, move |mut client| async move {
        let stream = match node.runtime.attach(&running.id).await {
            Ok(stream) => stream,
            Err(error) => {
                let result = failure("InternalError", &error.to_string(), Value::Null);
                return client.finish(&result).await;
            }
        };
        let result = match follow(&mut client, stream, wanted).await {
            Outcome::Gone => return,
            Outcome::Told(result) => result,
            // The shim reports no result: its streams end with the container, or it has given up a client that does not read.
            Outcome::Broken => match tokio::time::timeout(LAST, ended(&mut running.exit)).await {
                Ok(_) => success(),
                Err(_) => broken(),
            },
        };
        client.finish(&result).await;
    })
}

/// How the connection of a client with a program has ended.
pub(super) enum Outcome {
    /// The client is gone.
    Gone,
    /// With this status.
    Told(Value),
    /// The frames ended without a result.
    Broken,
}

impl Outcome {
    /// Reads the result of a program: empty for success, else a status or a text.
    fn of(told: Option<&[u8]>) -> Self {
        let Some(told) = told else {
            return Self::Broken;
        };
        Self::Told(match (told.is_empty(), serde_json::from_slice(told)) {
            (true, _) => success(),
            (false, Ok(result @ Value::Object(_))) => result,
            (false, _) => failure("InternalError", &String::from_utf8_lossy(told), Value::Null),
        })
    }
}

/// The status of streams that ended without a result.
pub(super) fn broken() -> Value {
    let text = "the connection to the program ended before its result was known";
    failure("InternalError", text, Value::Null)
}

/// Passes frames between the client and a program until the frames end.
pub(super) async fn follow(
    client: &mut Client,
    stream: UnixStream,
    wanted: RequestedStreams,
) -> Outcome {
    let (reader, writer) = UnixStream::into_split(stream);
    let (sender, output) = mpsc::channel(BACKLOG);
    let (typed, input) = mpsc::channel(BACKLOG);
    let (tell, result) = oneshot::channel();
    let mut copies = JoinSet::new();
    copies.spawn(copy(reader, wanted, sender, tell));
    copies.spawn(type_in(writer, input));
    if !client.converse(output, typed).await {
        return Outcome::Gone;
    }
    // It was told before the output ended, if at all.
    Outcome::of(result.await.ok().as_deref())
}

/// Passes on the frames of a program.
async fn copy(
    mut reader: OwnedReadHalf,
    wanted: RequestedStreams,
    sender: mpsc::Sender<Message>,
    result: oneshot::Sender<Vec<u8>>,
) {
    let mut result = Some(result);
    while let Some((channel, data)) = frames::read(&mut reader).await {
        let shown = match channel {
            channel::STDOUT => wanted.stdout,
            channel::STDERR => wanted.stderr,
            channel::ERROR => {
                if let Some(result) = result.take() {
                    // The session may be over.
                    let _ = result.send(data);
                }
                continue;
            }
            _ => false,
        };
        if shown && sender.send((channel, data)).await.is_err() {
            return;
        }
    }
}

/// Passes input to a program.
async fn type_in(mut writer: OwnedWriteHalf, mut input: mpsc::Receiver<Message>) {
    while let Some((channel, data)) = input.recv().await {
        if frames::write(&mut writer, channel, &data).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regression_frames_without_a_result_are_no_success() {
        let status = |told: Option<&[u8]>| match Outcome::of(told) {
            Outcome::Told(status) => status["status"].as_str().map(str::to_owned),
            Outcome::Gone | Outcome::Broken => None,
        };
        assert_eq!(status(None), None);
        assert_eq!(status(Some(b"")).as_deref(), Some("Success"));
        let told = br#"{"status": "Success"}"#;
        assert_eq!(status(Some(told)).as_deref(), Some("Success"));
        // Text, and half a status.
        assert_eq!(status(Some(b"no")).as_deref(), Some("Failure"));
        assert_eq!(status(Some(&told[..9])).as_deref(), Some("Failure"));
        assert_eq!(status(Some(b"1")).as_deref(), Some("Failure"));
        assert_eq!(broken()["status"], "Failure");
    }
}
