//! Forwarding over SPDY: for each connection of the client one stream with the data and one for what went wrong.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::codec::Framed;

use super::{Dialled, Target};
use crate::server::spdy::ASK;
use crate::server::streams::ASK_EVERY;
use crate::spdy::{Codec, Frame};

/// Limit of queued frames for the client, of all connections together.
const OUTGOING: usize = 32;
/// Limit of queued pieces for one connection; then reading from the client stops.
const INCOMING: usize = 32;
/// Limit of queued bytes of all connections of a client together.
const QUEUED: usize = 4 << 20;
/// How long the two streams of a connection may be apart, as upstream.
const OPENING: Duration = Duration::from_secs(30);
/// Streams whose partner has not been opened yet.
const MOST_UNPAIRED: usize = 1000;
/// Connections of one client at the same time.
const MOST_CONNECTIONS: usize = 1000;
/// The longest name that a client gives the pair of streams of a connection. Usual are numbers.
const LONGEST_NAME: usize = 256;
const PROTOCOL_ERROR: u32 = 1;
const REFUSED: u32 = 3;

/// Data of a client, and its share of what may be queued.
type Queued = (Bytes, OwnedSemaphorePermit);

/// The two streams of a connection, as far as they are open.
struct Pair {
    error: Option<u32>,
    data: Option<(u32, mpsc::Receiver<Queued>)>,
    since: Instant,
}

impl Pair {
    fn new() -> Self {
        Self {
            error: None,
            data: None,
            since: Instant::now(),
        }
    }
}

/// What is queued for the connections, by their data streams.
#[derive(Default)]
struct Inputs(HashMap<u32, mpsc::Sender<Queued>>);

impl Inputs {
    /// The queue of another stream.
    fn open(&mut self, id: u32) -> mpsc::Receiver<Queued> {
        if self.0.len() >= MOST_UNPAIRED + MOST_CONNECTIONS {
            // A client need not close the streams of connections that are over.
            self.0.retain(|_, input| !input.is_closed());
        }
        let (sender, receiver) = mpsc::channel(INCOMING);
        self.0.insert(id, sender);
        receiver
    }
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
    let mut inputs = Inputs::default();
    let free = Arc::new(Semaphore::new(QUEUED));
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
                pairs.retain(|_, pair| pair.since.elapsed() < OPENING);
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
                        let pair = pairs.entry(request.clone()).or_insert_with(Pair::new);
                        if kind == "error" {
                            pair.error = Some(id);
                        } else {
                            pair.data = Some((id, inputs.open(id)));
                        }
                        let sent = out.send(Frame::Reply { id }).await;
                        if let Pair {
                            error: Some(error),
                            data: Some(_),
                            ..
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
                let input = inputs.0.get(&id).filter(|_| !data.is_empty());
                let taken = match input {
                    Some(input) => queue(input, &free, data, &out).await,
                    None => true,
                };
                if !taken {
                    break;
                }
                if fin {
                    inputs.0.remove(&id);
                }
                Ok(())
            }
            Frame::Reset { id, .. } => {
                inputs.0.remove(&id);
                Ok(())
            }
            answer @ Frame::Ping(_) if answer == ASK => Ok(()),
            ping @ Frame::Ping(_) => out.send(ping).await,
            Frame::Reply { .. } | Frame::GoAway { .. } | Frame::Other => Ok(()),
        };
        if sent.is_err() {
            break;
        }
        while connections.try_join_next().is_some() {}
    }
    writer.abort();
}

/// Queues data for a connection; false if the client is gone. As long as too much is queued, because the pod does not read or one of
/// two streams is missing, the client is not listened to, but asked whether it is there. `free` is what may be queued in addition.
async fn queue(
    input: &mpsc::Sender<Queued>,
    free: &Arc<Semaphore>,
    data: Bytes,
    out: &mpsc::Sender<Frame>,
) -> bool {
    let queued = async {
        // A piece is smaller than all that may be queued. It is copied: it would keep all that was received with it.
        let size = u32::try_from(data.len()).unwrap_or(u32::MAX);
        if let Ok(share) = Arc::clone(free).acquire_many_owned(size).await {
            // A connection that is over has no use for more.
            let _ = input.send((Bytes::copy_from_slice(&data), share)).await;
        }
    };
    let mut queued = std::pin::pin!(queued);
    loop {
        tokio::select! {
            () = &mut queued => return true,
            () = out.closed() => return false,
            () = tokio::time::sleep(ASK_EVERY) => {
                // A full queue is one that the client, if it is there, does not read.
                let _ = out.try_send(ASK);
            }
        }
    }
}

/// One connection, from dialling to the end of both directions.
async fn connect(
    target: Target,
    port: u16,
    error: u32,
    data: u32,
    mut input: mpsc::Receiver<Queued>,
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
                while let Some((bytes, _share)) = input.recv().await {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The attack: a client forwards to a port where nothing listens, and never closes its streams. Each was kept.
    #[test]
    fn regression_streams_that_are_not_closed_are_forgotten() {
        let mut inputs = Inputs::default();
        let open = inputs.open(1);
        for id in 2..10_000 {
            drop(inputs.open(id));
        }
        assert!(inputs.0.len() <= MOST_UNPAIRED + MOST_CONNECTIONS);
        assert!(inputs.0.contains_key(&1));
        drop(open);
    }
}
