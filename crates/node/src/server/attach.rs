//! `kubectl attach`: the streams of a container's own program, from now on.

use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::exec::{BACKLOG, failure, running, success};
use super::streams::{self, Client, Message, RequestedStreams, channel};
use super::{Body, Query, Refusal};
use crate::pods::Node;
use crate::shim::spec::MAX_FRAME;

pub(super) fn serve(
    node: &Arc<Node>,
    namespace: &str,
    pod: &str,
    container: &str,
    query: &Query,
    request: Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    let id = running(node, namespace, pod, container)?;
    let wanted = RequestedStreams::parse(query)?;
    let node = Arc::clone(node);
    streams::upgrade(request, wanted, move |mut client| async move {
        let stream = match node.runtime.attach(&id).await {
            Ok(stream) => stream,
            Err(error) => {
                let result = failure("InternalError", &error.to_string(), Value::Null);
                return client.finish(&result).await;
            }
        };
        if let Some(result) = follow(&mut client, stream, wanted).await {
            client.finish(&result).await;
        }
    })
}

/// Passes frames between the client and a program until the program ends; returns the final status, which is a success
/// unless the last frame says something else, or nothing if the client is gone.
pub(super) async fn follow(
    client: &mut Client,
    stream: UnixStream,
    wanted: RequestedStreams,
) -> Option<Value> {
    let (reader, writer) = UnixStream::into_split(stream);
    let (sender, output) = mpsc::channel(BACKLOG);
    let (typed, input) = mpsc::channel(BACKLOG);
    let (tell, result) = oneshot::channel();
    let mut copies = JoinSet::new();
    copies.spawn(copy(reader, wanted, sender, tell));
    copies.spawn(type_in(writer, input));
    if !client.converse(output, typed).await {
        return None;
    }
    // It was told before the output ended.
    let told: Vec<u8> = result.await.unwrap_or_default();
    Some(match (told.is_empty(), serde_json::from_slice(&told)) {
        (true, _) => success(),
        (false, Ok(result)) => result,
        (false, Err(_)) => failure(
            "InternalError",
            &String::from_utf8_lossy(&told),
            Value::Null,
        ),
    })
}

/// Reads the shim's frames: channel, length, data.
async fn copy(
    mut reader: OwnedReadHalf,
    wanted: RequestedStreams,
    sender: mpsc::Sender<Message>,
    result: oneshot::Sender<Vec<u8>>,
) {
    let mut result = Some(result);
    while let (Ok(channel), Ok(length)) = (reader.read_u8().await, reader.read_u32().await) {
        if length > MAX_FRAME {
            return;
        }
        let mut data = vec![0; length as usize];
        if reader.read_exact(&mut data).await.is_err() {
            return;
        }
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

/// Sends input to the shim, in the same format.
async fn type_in(mut writer: OwnedWriteHalf, mut input: mpsc::Receiver<Message>) {
    while let Some((channel, data)) = input.recv().await {
        for piece in data.chunks(MAX_FRAME as usize) {
            let mut frame = Vec::with_capacity(piece.len() + 5);
            frame.push(channel);
            frame.extend_from_slice(&(piece.len() as u32).to_be_bytes());
            frame.extend_from_slice(piece);
            if writer.write_all(&frame).await.is_err() {
                return;
            }
        }
    }
}
