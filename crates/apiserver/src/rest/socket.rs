//! Watches and logs by WebSocket, for clients that cannot read an answer before it ends, such as browsers.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::{SinkExt, StreamExt};
use http::header::{
    CONNECTION, CONTENT_TYPE, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    UPGRADE,
};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::auth::credential;
use crate::body::Body;
use crate::request::Incoming;

/// The largest message that is read from a client. Its content is ignored, but it would be buffered until it is
/// complete.
const MAX_RECEIVED: usize = 64 << 10;

/// Bytes of a log in a message, as upstream.
const LOG_MESSAGE: usize = 2048;
/// The protocol of a log whose messages are text.
const BASE64: &str = "base64.binary.k8s.io";
/// All protocols of logs.
const LOG_PROTOCOLS: [&str; 3] = ["", "binary.k8s.io", BASE64];

/// How an answer is divided into messages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    /// A message for each line: events in JSON.
    Lines,
    /// A message for what follows each length of four bytes: events in protobuf.
    Lengths,
    /// Binary messages of any length.
    Bytes,
    /// The same in base64.
    Base64,
}

/// The connection of a request for an upgrade to WebSocket.
pub(in crate::rest) struct Socket {
    connection: OnUpgrade,
    accept: String,
    /// The protocols that the client offers.
    offered: Vec<String>,
    /// How long a message may take to be sent.
    stall: std::time::Duration,
}

impl Socket {
    /// The connection of a request for an upgrade to WebSocket; none of any other request.
    pub(in crate::rest) fn of(request: &Incoming, stall: std::time::Duration) -> Option<Self> {
        if request.method != http::Method::GET || !credential::is_websocket(&request.headers) {
            return None;
        }
        let key = request.headers.get(SEC_WEBSOCKET_KEY)?;
        let accept = derive_accept_key(key.as_bytes());
        let offered = request.headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
        // What is not text is no protocol that the server has.
        let offered = offered.map(|value| String::from_utf8_lossy(value.as_bytes()));
        let offered = offered.flat_map(|names| {
            let names = names.split(',').map(|name| name.trim().to_owned());
            names.collect::<Vec<_>>()
        });
        Some(Socket {
            connection: request.upgrade.lock().take()?,
            accept,
            offered: offered.collect(),
            stall,
        })
    }

    /// Sends the events of a watch over the connection; an answer that is no watch is returned as it is.
    pub(in crate::rest) fn carry_watch(self, watch: Response<Body>) -> Response<Body> {
        let binary = watch
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/vnd."));
        let framing = match binary {
            true => Framing::Lengths,
            false => Framing::Lines,
        };
        // Upstream takes the first protocol that is offered: events have one form.
        let protocol = self.offered.first().cloned();
        self.carry(watch, protocol, framing)
    }

    /// Sends a log over the connection, in the first of the offered protocols that upstream has; an answer that is no log is
    /// returned as it is. As upstream, a client that offers only other protocols gets 403 without a text.
    pub(in crate::rest) fn carry_log(self, log: Response<Body>) -> Response<Body> {
        let known = |name: &&String| LOG_PROTOCOLS.contains(&name.as_str());
        let protocol = self.offered.iter().find(known).cloned();
        if protocol.is_none() && !self.offered.is_empty() {
            let mut answer = Response::new(Body::empty());
            *answer.status_mut() = StatusCode::FORBIDDEN;
            return answer;
        }
        let framing = match protocol.as_deref() {
            Some(BASE64) => Framing::Base64,
            _ => Framing::Bytes,
        };
        self.carry(log, protocol, framing)
    }

    fn carry(
        self,
        answer: Response<Body>,
        protocol: Option<String>,
        framing: Framing,
    ) -> Response<Body> {
        if answer.status() != StatusCode::OK {
            return answer;
        }
        let content = answer.into_body();
        let mut answer = Response::new(Body::empty());
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = answer.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        if let Ok(accept) = HeaderValue::from_str(&self.accept) {
            headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
        }
        if let Some(protocol) = protocol.and_then(|name| HeaderValue::from_str(&name).ok()) {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
        }
        tokio::spawn(async move {
            match self.connection.await {
                Ok(connection) => send(connection, content, framing, self.stall).await,
                Err(error) => tracing::debug!(%error, "upgrade failed"),
            }
        });
        answer
    }
}

/// Sends an answer until it ends or the client leaves.
async fn send(
    connection: hyper::upgrade::Upgraded,
    mut content: Body,
    framing: Framing,
    stall: std::time::Duration,
) {
    let connection = TokioIo::new(connection);
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_RECEIVED))
        .max_frame_size(Some(MAX_RECEIVED));
    let socket = WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await;
    let (mut out, mut back) = socket.split();
    // Upstream begins a log with an empty message, so that the client sees that it has begun.
    let first = match framing {
        Framing::Lines | Framing::Lengths => None,
        Framing::Bytes => Some(Message::Binary(Vec::new().into())),
        Framing::Base64 => Some(Message::Text(String::new().into())),
    };
    if let Some(first) = first {
        match tokio::time::timeout(stall, out.send(first)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
    let mut pending = Vec::new();
    loop {
        let piece = tokio::select! {
            piece = content.frame() => piece,
            message = back.next() => match message {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                // Messages of the client are ignored.
                Some(Ok(_)) => continue,
            },
        };
        let Some(Ok(piece)) = piece else { break };
        let Ok(data) = piece.into_data() else {
            continue;
        };
        pending.extend_from_slice(&data);
        while let Some(message) = next_message(&mut pending, framing) {
            match tokio::time::timeout(stall, out.send(message)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }
    let _ = tokio::time::timeout(stall, out.close()).await;
}

/// Takes the first message out of the bytes of an answer, if it is there as a whole.
fn next_message(pending: &mut Vec<u8>, framing: Framing) -> Option<Message> {
    match framing {
        Framing::Lengths => {
            let length = pending.first_chunk::<4>()?;
            let end = 4 + usize::try_from(u32::from_be_bytes(*length)).ok()?;
            if pending.len() < end {
                return None;
            }
            let event: Vec<u8> = pending.drain(..end).skip(4).collect();
            Some(Message::Binary(event.into()))
        }
        Framing::Lines => {
            let end = pending.iter().position(|byte| *byte == b'\n')? + 1;
            let event: Vec<u8> = pending.drain(..end).collect();
            Some(Message::Text(String::from_utf8(event).ok()?.into()))
        }
        Framing::Bytes | Framing::Base64 => {
            if pending.is_empty() {
                return None;
            }
            let end = pending.len().min(LOG_MESSAGE);
            let piece: Vec<u8> = pending.drain(..end).collect();
            Some(match framing {
                Framing::Base64 => Message::Text(STANDARD.encode(piece).into()),
                _ => Message::Binary(piece.into()),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_a_message() {
        let mut pending = b"{\"a\":1}\n{\"b\":2}\n{\"c\"".to_vec();
        let mut found = Vec::new();
        while let Some(message) = next_message(&mut pending, Framing::Lines) {
            found.push(message.into_text().unwrap().to_string());
        }
        assert_eq!(found, ["{\"a\":1}\n", "{\"b\":2}\n"]);
        assert_eq!(pending, b"{\"c\"");
        let mut pending = b"\0\0\0\x02ab\0\0\0\x05c".to_vec();
        let first = next_message(&mut pending, Framing::Lengths).unwrap();
        assert_eq!(first.into_data().as_ref(), b"ab");
        assert!(next_message(&mut pending, Framing::Lengths).is_none());
    }

    #[test]
    fn a_log_is_divided_into_short_messages() {
        let check = |framing, sizes: &[usize]| {
            let mut pending = vec![b'x'; LOG_MESSAGE + 1];
            let mut found = Vec::new();
            while let Some(message) = next_message(&mut pending, framing) {
                found.push(message.len());
            }
            assert_eq!(found, sizes);
        };
        check(Framing::Bytes, &[LOG_MESSAGE, 1]);
        check(Framing::Base64, &[LOG_MESSAGE.div_ceil(3) * 4, 4]);
    }
}
