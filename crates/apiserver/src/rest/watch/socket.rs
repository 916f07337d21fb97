//! Watches by WebSocket, for clients that cannot read an answer before it ends: each event is a message.

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

/// The connection of a watch over WebSocket.
pub(in crate::rest) struct Socket {
    connection: OnUpgrade,
    accept: String,
    protocol: Option<HeaderValue>,
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
        // Upstream takes the first protocol that is offered: events have one form.
        let offered = request.headers.get(SEC_WEBSOCKET_PROTOCOL);
        let first = offered.and_then(|value| value.to_str().ok()?.split(',').next());
        Some(Socket {
            connection: request.upgrade.lock().take()?,
            accept,
            protocol: first.and_then(|name| HeaderValue::from_str(name.trim()).ok()),
            stall,
        })
    }

    /// Sends the events of the watch over the connection; an answer that is no watch is returned as it is.
    pub(in crate::rest) fn carry(self, watch: Response<Body>) -> Response<Body> {
        if watch.status() != StatusCode::OK {
            return watch;
        }
        let binary = watch
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/vnd."));
        let mut answer = Response::new(Body::empty());
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = answer.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        if let Ok(accept) = HeaderValue::from_str(&self.accept) {
            headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
        }
        if let Some(protocol) = self.protocol {
            headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
        }
        let events = watch.into_body();
        tokio::spawn(async move {
            match self.connection.await {
                Ok(connection) => send(connection, events, binary, self.stall).await,
                Err(error) => tracing::debug!(%error, "upgrade failed"),
            }
        });
        answer
    }
}

/// Sends events until they or the client end.
async fn send(
    connection: hyper::upgrade::Upgraded,
    mut events: Body,
    binary: bool,
    stall: std::time::Duration,
) {
    let connection = TokioIo::new(connection);
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_RECEIVED))
        .max_frame_size(Some(MAX_RECEIVED));
    let socket = WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await;
    let (mut out, mut back) = socket.split();
    let mut pending = Vec::new();
    loop {
        let piece = tokio::select! {
            piece = events.frame() => piece,
            message = back.next() => match message {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                // Messages of a client to a watch are ignored.
                Some(Ok(_)) => continue,
            },
        };
        let Some(Ok(piece)) = piece else { break };
        let Ok(data) = piece.into_data() else {
            continue;
        };
        pending.extend_from_slice(&data);
        while let Some(message) = next_message(&mut pending, binary) {
            match tokio::time::timeout(stall, out.send(message)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }
    let _ = tokio::time::timeout(stall, out.close()).await;
}

/// Takes the first whole event out of the bytes of a watch: a line of JSON, or protobuf behind its length.
fn next_message(pending: &mut Vec<u8>, binary: bool) -> Option<Message> {
    if binary {
        let length = pending.first_chunk::<4>()?;
        let end = 4 + usize::try_from(u32::from_be_bytes(*length)).ok()?;
        if pending.len() < end {
            return None;
        }
        let event: Vec<u8> = pending.drain(..end).skip(4).collect();
        return Some(Message::Binary(event.into()));
    }
    let end = pending.iter().position(|byte| *byte == b'\n')? + 1;
    let event: Vec<u8> = pending.drain(..end).collect();
    Some(Message::Text(String::from_utf8(event).ok()?.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_a_message() {
        let mut pending = b"{\"a\":1}\n{\"b\":2}\n{\"c\"".to_vec();
        let mut found = Vec::new();
        while let Some(message) = next_message(&mut pending, false) {
            found.push(message.into_text().unwrap().to_string());
        }
        assert_eq!(found, ["{\"a\":1}\n", "{\"b\":2}\n"]);
        assert_eq!(pending, b"{\"c\"");
        let mut pending = b"\0\0\0\x02ab\0\0\0\x05c".to_vec();
        let first = next_message(&mut pending, true).unwrap();
        assert_eq!(first.into_data().as_ref(), b"ab");
        assert!(next_message(&mut pending, true).is_none());
    }
}
