//! `kubectl port-forward`: connections to ports of a pod.
//!
//! A pod's port is one of the loopback interface, of the pod's network namespace if it has one, otherwise of the host's. Clients
//! come in three forms: SPDY, SPDY inside of a WebSocket (kubectl since 1.31), and WebSocket with two channels per port
//! (Python's and browsers' clients).

mod channels;
mod forward;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use futures::{SinkExt, StreamExt, TryStreamExt};
use http::{Request, Response};
use hyper::body::Incoming;
use kube::ResourceExt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio_tungstenite::tungstenite::Message;
use tokio_util::codec::Framed;
use tokio_util::io::{CopyToBytes, SinkWriter, StreamReader};
use tokio_util::sync::DropGuard;

use super::{Body, Query, Refusal, connections, spdy, streams, websocket};
use crate::pods::{Node, network};

/// The protocol on the SPDY streams.
const PROTOCOL: &str = "portforward.k8s.io";
/// SPDY inside of a WebSocket.
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";

/// The pod whose ports are forwarded.
#[derive(Clone)]
struct Target {
    node: Arc<Node>,
    name: String,
    uid: String,
    /// The pod's network namespace, if it has one of its own.
    network: Option<std::path::PathBuf>,
}

/// What is said by one side, and what is said to it.
type Halves = (
    Box<dyn AsyncRead + Send + Unpin>,
    Box<dyn AsyncWrite + Send + Unpin>,
);

/// A connection to a port.
struct Dialled {
    halves: Halves,
    trouble: Option<oneshot::Receiver<String>>,
    /// Ends the connection, and releases its permit.
    _guard: (Option<DropGuard>, OwnedSemaphorePermit),
}

impl Dialled {
    /// What went wrong with the connection although it was made, as far as it is known when it has ended.
    fn trouble(from: &mut Option<oneshot::Receiver<String>>) -> Option<String> {
        from.as_mut()?.try_recv().ok()
    }
}

impl Target {
    /// Connects to a port.
    async fn dial(&self, port: u16) -> Result<Dialled, String> {
        let Self {
            name, uid, node, ..
        } = self;
        let place = connections::forwarded().ok_or_else(|| {
            format!("error forwarding port {port} to pod {name}, uid {uid}: too many connections")
        })?;
        if let Some(complete) = node.runtime.complete() {
            let made = complete.dial(uid, port).await.map_err(|error| {
                format!("error forwarding port {port} to pod {name}, uid {uid}: {error}")
            })?;
            let (reader, writer) = made.stream.into_split();
            return Ok(Dialled {
                halves: (Box::new(reader), Box::new(writer)),
                trouble: Some(made.trouble),
                _guard: (Some(made.guard), place),
            });
        }
        let addresses = [
            SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            SocketAddr::from((Ipv6Addr::LOCALHOST, port)),
        ];
        let connected = match &self.network {
            Some(namespace) => network::connect(namespace.clone(), port).await,
            None => TcpStream::connect(&addresses[..]).await,
        };
        let stream = connected.map_err(|error| {
            let reason = match error.kind() {
                std::io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
                _ => error.to_string(),
            };
            format!(
                "error forwarding port {port} to pod {name}, uid {uid}: failed to connect to localhost:{port}: {reason}"
            )
        })?;
        let (reader, writer) = stream.into_split();
        Ok(Dialled {
            halves: (Box::new(reader), Box::new(writer)),
            trouble: None,
            _guard: (None, place),
        })
    }
}

pub(super) fn serve(
    node: &Arc<Node>,
    namespace: &str,
    pod: &str,
    query: &Query,
    request: Request<Incoming>,
) -> Result<Response<Body>, Refusal> {
    let missing = || Refusal::not_found(format!("pod does not exist: {namespace}/{pod}"));
    let (object, _) = node.find(namespace, pod).ok_or_else(missing)?;
    if !node.runtime.has_network() {
        return Err(Refusal::bad_request(
            "pods of a simulated node have no network: there is no port to forward",
        ));
    }
    let target = Target {
        node: Arc::clone(node),
        name: object.name_any(),
        network: network::of(&node.pod_dir(&object.uid().unwrap_or_default())),
        uid: object.uid().unwrap_or_default(),
    };
    if streams::asks_for(request.headers(), spdy::TOKEN) {
        return spdy::upgrade(request, &[PROTOCOL], move |connection, _| {
            forward::run(connection, target)
        });
    }
    if !streams::asks_for(request.headers(), "websocket") {
        return Err(Refusal::bad_request(
            "unable to upgrade: the request asks for neither WebSocket nor SPDY/3.1",
        ));
    }
    let ports = channels::ports(query).map_err(Refusal::bad_request)?;
    let [_, plain, base64, _, _, none] = websocket::CHANNELS;
    let known = [TUNNEL, plain, base64, none];
    websocket::upgrade(request, &known, move |stream, protocol| async move {
        if protocol == TUNNEL {
            forward::run(tunnel(stream), target).await;
        } else {
            let socket = websocket::Socket::new(stream, protocol);
            channels::run(socket, &ports, target).await;
        }
    })
}

/// The payload of binary messages as a connection.
fn tunnel(
    stream: websocket::Stream,
) -> Framed<impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin, spdy::Codec> {
    let (sink, messages) = stream.split();
    let bytes = messages
        .map_err(std::io::Error::other)
        .try_filter_map(|message| {
            std::future::ready(Ok(match message {
                Message::Binary(data) => Some(data),
                _ => None,
            }))
        });
    let sink = sink
        .sink_map_err(std::io::Error::other)
        .with(|data: Bytes| std::future::ready(Ok::<_, std::io::Error>(Message::Binary(data))));
    let writer = SinkWriter::new(CopyToBytes::new(sink));
    Framed::new(
        tokio::io::join(StreamReader::new(Box::pin(bytes)), Box::pin(writer)),
        spdy::Codec::new(),
    )
}
