//! The WebSocket protocols of exec, attach and port-forward: one byte names the channel, the rest is data.

use base64::Engine;
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, UPGRADE,
};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};

use super::{Body, Refusal};

/// Versions, best first. v4 reports the result as a Status and those before it as text, v5 can end standard input; the
/// base64 form is for browsers. The last one is that of clients that name none.
pub(super) const CHANNELS: [&str; 6] = [
    "v5.channel.k8s.io",
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "channel.k8s.io",
    "base64.channel.k8s.io",
    "",
];

/// The largest message of a client, which is in memory as a whole. kubectl and client-go send 32 KiB, and some clients
/// whole files.
const MESSAGE: usize = 4 << 20;
/// The pieces in which a message is passed on: queues count pieces.
const PIECE: usize = 64 << 10;

/// A WebSocket connection.
pub(super) type Stream = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

/// A connection with channels.
pub(super) struct Socket<S = TokioIo<hyper::upgrade::Upgraded>> {
    stream: WebSocketStream<S>,
    base64: bool,
    /// What has not been passed on of the last message, and its channel.
    rest: Option<(u8, Bytes)>,
}

/// Answers the upgrade with the first of the known protocols that the client offers, and passes it and the connection
/// to `run`. A client that offers none offers the empty one.
pub(super) fn upgrade<F>(
    request: Request<Incoming>,
    known: &[&'static str],
    run: impl FnOnce(Stream, &'static str) -> F + Send + 'static,
) -> Result<Response<Body>, Refusal>
where
    F: Future<Output = ()> + Send,
{
    let headers = request.headers();
    let Some(key) = headers.get(SEC_WEBSOCKET_KEY) else {
        return Err(Refusal::bad_request(
            "unable to upgrade: the request has no Sec-WebSocket-Key",
        ));
    };
    let mut offered: Vec<&str> = headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(str::trim))
        .filter(|protocol| !protocol.is_empty())
        .collect();
    if offered.is_empty() {
        offered.push("");
    }
    let Some(&protocol) = known.iter().find(|protocol| offered.contains(protocol)) else {
        return Err(Refusal::bad_request(format!(
            "unable to upgrade: none of the protocols {offered:?} is supported"
        )));
    };
    let mut response = Response::new(Empty::new().map_err(|never| match never {}).boxed());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let accept = HeaderValue::try_from(derive_accept_key(key.as_bytes()))
        .map_err(|_| Refusal::bad_request("invalid Sec-WebSocket-Key"))?;
    let out = response.headers_mut();
    out.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    out.insert(UPGRADE, HeaderValue::from_static("websocket"));
    out.insert(SEC_WEBSOCKET_ACCEPT, accept);
    if !protocol.is_empty() {
        out.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    }
    tokio::spawn(async move {
        match hyper::upgrade::on(request).await {
            Ok(upgraded) => {
                let io = TokioIo::new(upgraded);
                let stream = WebSocketStream::from_raw_socket(io, Role::Server, Some(bounds()));
                run(stream.await, protocol).await;
            }
            Err(error) => tracing::debug!(%error, "upgrade"),
        }
    });
    Ok(response)
}

/// What is accepted from a client.
fn bounds() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(MESSAGE))
        .max_frame_size(Some(MESSAGE))
}

impl<S: AsyncRead + AsyncWrite + Unpin> Socket<S> {
    /// A connection that speaks one of [`CHANNELS`].
    pub(super) fn new(stream: WebSocketStream<S>, protocol: &str) -> Self {
        let base64 = protocol.contains("base64");
        Self {
            stream,
            base64,
            rest: None,
        }
    }

    /// Sends data on a channel.
    pub(super) async fn send(&mut self, channel: u8, data: &[u8]) -> Result<(), ()> {
        let message = if self.base64 {
            let data = base64::engine::general_purpose::STANDARD.encode(data);
            let digit = char::from(b'0'.wrapping_add(channel));
            Message::text(format!("{digit}{data}"))
        } else {
            let mut message = Vec::with_capacity(data.len() + 1);
            message.push(channel);
            message.extend_from_slice(data);
            Message::binary(message)
        };
        self.stream.send(message).await.map_err(drop)
    }

    /// Sends a ping; an error means that the client disconnected. The answer is of no interest.
    pub(super) async fn ask(&mut self) -> Result<(), ()> {
        let ping = Message::Ping(Bytes::new());
        self.stream.send(ping).await.map_err(drop)
    }

    /// The next data and its channel; `None` when the client disconnected. Cancel-safe.
    pub(super) async fn receive(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            if let Some((channel, mut rest)) = self.rest.take() {
                let piece = rest.split_to(rest.len().min(PIECE)).to_vec();
                if !rest.is_empty() {
                    self.rest = Some((channel, rest));
                }
                return Some((channel, piece));
            }
            // A broken connection, an invalid frame or a message that is too large ends the stream, as if the client had
            // disconnected: what follows cannot be read.
            let mut data: Bytes = match self.stream.next().await?.ok()? {
                Message::Binary(data) => data,
                // Python's client sends text as text messages.
                Message::Text(text) if !self.base64 => text.into(),
                Message::Text(text) => {
                    let mut data = text.chars();
                    let digit = u8::try_from(data.next()?).ok()?;
                    let data = data.as_str();
                    let mut decoded = vec![digit.wrapping_sub(b'0')];
                    decoded.extend(
                        base64::engine::general_purpose::STANDARD
                            .decode(data)
                            .ok()?,
                    );
                    decoded.into()
                }
                Message::Close(_) => return None,
                _ => continue,
            };
            if let Some(channel) = data.first().copied() {
                // A message without data is a piece, too.
                self.rest = Some((channel, data.split_off(1)));
            }
        }
    }

    /// Closes the connection, and waits for the client's close frame.
    pub(super) async fn close(mut self) {
        let frame = CloseFrame {
            code: CloseCode::Normal,
            reason: "".into(),
        };
        let _ = self.stream.close(Some(frame)).await;
        let drain = async { while let Some(Ok(_)) = self.stream.next().await {} };
        let _ = tokio::time::timeout(std::time::Duration::from_secs(5), drain).await;
    }
}

/// Fuzzing entry point; see [`crate::fuzzing::websocket`].
pub(crate) fn fuzz(bytes: &[u8]) {
    let Some((how, bytes)) = bytes.split_first() else {
        return;
    };
    let step = usize::from(how >> 1).max(1);
    let pieces = futures::stream::iter(bytes.chunks(step).map(Ok::<_, std::io::Error>));
    let io = tokio::io::join(tokio_util::io::StreamReader::new(pieces), tokio::io::sink());
    let protocol = match how & 1 {
        0 => "v5.channel.k8s.io",
        _ => "v4.base64.channel.k8s.io",
    };
    let receive = async {
        let stream = WebSocketStream::from_raw_socket(io, Role::Server, Some(bounds())).await;
        let mut socket = Socket::new(stream, protocol);
        let mut received = 0;
        while let Some((_, data)) = socket.receive().await {
            assert!(data.len() <= PIECE, "a piece of {} bytes", data.len());
            received += data.len();
        }
        received
    };
    let received = futures::executor::block_on(receive);
    assert!(received <= bytes.len(), "more data than was sent");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that asked for many ports made the digit of a channel too large, which ended a program that checks arithmetic.
    #[tokio::test]
    async fn regression_channels_of_many_ports_have_a_digit_in_base64() {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let protocol = "v4.base64.channel.k8s.io";
        let server = WebSocketStream::from_raw_socket(ours, Role::Server, Some(bounds())).await;
        let client = WebSocketStream::from_raw_socket(theirs, Role::Client, Some(bounds())).await;
        let (mut server, mut client) =
            (Socket::new(server, protocol), Socket::new(client, protocol));
        for channel in 0..240 {
            server.send(channel, b"data").await.expect("sent");
            let received = client.receive().await.expect("received");
            assert_eq!(received, (channel, b"data".to_vec()));
        }
    }
}
