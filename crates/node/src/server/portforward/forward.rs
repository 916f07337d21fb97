//! Forwarding over SPDY: for each connection of the client one stream with the data and one for what went wrong.

use std::collections::HashMap;

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::codec::Framed;

use super::{Dialled, Target};
use crate::spdy::{Codec, Frame};

/// Limit of queued frames for the client, of all connections together.
const OUTGOING: usize = 32;
/// Limit of queued data for one connection; then reading from the client stops.
const INCOMING: usize = 32;
/// Streams whose partner has not been opened yet.
const MOST_UNPAIRED: usize = 1000;
/// Connections of one client at the same time.
const MOST_CONNECTIONS: usize = 1000;
/// The longest name that a client gives the pair of streams of a connection. Usual are numbers.
const LONGEST_NAME: usize = 256;
const PROTOCOL_ERROR: u32 = 1;
const REFUSED: u32 = 3;

/// The two streams of a connection, as far as they are open.
#[derive(Default)]
struct Pair {
    error: Option<u32>,
    data: Option<(u32, mpsc::Receiver<Bytes>)>,
}

/// Serves until the client disconnects.
pub(super) async fn run<S>(connection: Framed<S, Codec>, target: Target)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sink, mut frames) = connection.split();
    let (out, mut outgoing) = mpsc::channel::<Frame>(OUTGOING);
    let writer = tokio::spawn(async move {
        while let Some(frame) = outgoing.recv().await {
            if sink.send(frame).await.is_err() {
                return;
            }
        }
        let _ = sink.close().await;
    });
    let mut pairs: HashMap<String, Pair> = HashMap::new();
    let mut inputs: HashMap<u32, mpsc::Sender<Bytes>> = HashMap::new();
    // Dropped with the client's connection: their peer is gone.
    let mut connections = JoinSet::new();
    while let Some(Ok(frame)) = frames.next().await {
        let sent = match frame {
            Frame::Open { id, headers, .. } => {
                let get = |name: &str| {
                    let found = headers.iter().find(|(known, _)| known == name);
                    found.map(|(_, value)| value.as_str())
                };
                let kind = get("streamtype").unwrap_or_default().to_owned();
                let port = get("port").and_then(|port| port.parse::<u16>().ok());
                // Clients from before request ids open the error stream first and its data stream next.
                let request = get("requestid").map_or_else(
                    || {
                        format!(
                            "{}",
                            if kind == "data" {
                                id.wrapping_sub(2)
                            } else {
                                id
                            }
                        )
                    },
                    str::to_owned,
                );
                let full = pairs.len() >= MOST_UNPAIRED || connections.len() >= MOST_CONNECTIONS;
                let pair = pairs.get(&request);
                let status = match (port, kind.as_str()) {
                    _ if request.len() > LONGEST_NAME => Some(PROTOCOL_ERROR),
                    (Some(1..), "error") if pair.is_some_and(|it| it.error.is_some()) => {
                        Some(PROTOCOL_ERROR)
                    }
                    (Some(1..), "data") if pair.is_some_and(|it| it.data.is_some()) => {
                        Some(PROTOCOL_ERROR)
                    }
                    (Some(1..), "error" | "data") if full => Some(REFUSED),
                    (Some(1..), "error" | "data") => None,
                    _ => Some(PROTOCOL_ERROR),
                };
                match (status, port) {
                    (None, Some(port)) => {
                        let pair = pairs.entry(request.clone()).or_default();
                        if kind == "error" {
                            pair.error = Some(id);
                        } else {
                            let (sender, receiver) = mpsc::channel(INCOMING);
                            inputs.insert(id, sender);
                            pair.data = Some((id, receiver));
                        }
                        let sent = out.send(Frame::Reply { id }).await;
                        if let Pair {
                            error: Some(error),
                            data: Some(_),
                        } = pair
                        {
                            let error = *error;
                            if let Some((data, input)) =
                                pairs.remove(&request).and_then(|pair| pair.data)
                            {
                                let (target, out) = (target.clone(), out.clone());
                                connections.spawn(async move {
                                    connect(target, port, error, data, input, out).await;
                                });
                            }
                        }
                        sent
                    }
                    (status, _) => {
                        let status = status.unwrap_or(PROTOCOL_ERROR);
                        out.send(Frame::Reset { id, status }).await
                    }
                }
            }
            Frame::Data { id, data, fin } => {
                if let Some(input) = inputs.get(&id).filter(|_| !data.is_empty()) {
                    // A connection that is over has no use for more.
                    let _ = input.send(data).await;
                }
                if fin {
                    inputs.remove(&id);
                }
                Ok(())
            }
            Frame::Reset { id, .. } => {
                inputs.remove(&id);
                Ok(())
            }
            Frame::Ping(id) => out.send(Frame::Ping(id)).await,
            Frame::Reply { .. } | Frame::GoAway { .. } | Frame::Other => Ok(()),
        };
        if sent.is_err() {
            break;
        }
        while connections.try_join_next().is_some() {}
    }
    writer.abort();
}

/// One connection, from dialling to the end of both directions.
async fn connect(
    target: Target,
    port: u16,
    error: u32,
    data: u32,
    mut input: mpsc::Receiver<Bytes>,
    out: mpsc::Sender<Frame>,
) {
    let end = |id| Frame::Data {
        id,
        data: Bytes::new(),
        fin: true,
    };
    match target.dial(port).await {
        Ok(mut dialled) => {
            let (reader, writer) = &mut dialled.halves;
            let trouble = &mut dialled.trouble;
            let towards_pod = async {
                while let Some(bytes) = input.recv().await {
                    if writer.write_all(&bytes).await.is_err() {
                        break;
                    }
                }
                let _ = writer.shutdown().await;
            };
            let towards_client = async {
                let mut buffer = vec![0; 32 * 1024];
                while let Ok(n @ 1..) = reader.read(&mut buffer).await {
                    let frame = Frame::Data {
                        id: data,
                        data: Bytes::copy_from_slice(&buffer[..n]),
                        fin: false,
                    };
                    if out.send(frame).await.is_err() {
                        return;
                    }
                }
                let _ = out.send(end(data)).await;
                if let Some(text) = Dialled::trouble(trouble) {
                    let data = text.into();
                    let fin = false;
                    let id = error;
                    let _ = out.send(Frame::Data { id, data, fin }).await;
                }
                // The pod has closed its side: the client's stream may never end on its own.
                let _ = out.send(end(error)).await;
            };
            tokio::pin!(towards_pod, towards_client);
            tokio::select! {
                () = &mut towards_pod => towards_client.await,
                () = &mut towards_client => {}
            }
        }
        Err(text) => {
            let data_of = Frame::Data {
                id: error,
                data: text.into(),
                fin: true,
            };
            let _ = out.send(data_of).await;
            let _ = out.send(end(data)).await;
        }
    }
}
