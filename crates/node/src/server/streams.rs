//! The connection of a client with a program: standard streams, result and terminal size, over WebSocket or SPDY.

use std::time::Duration;

use http::header::UPGRADE;
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use serde_json::Value;
use tokio::sync::mpsc;

use super::query::Query;
use super::{Body, Refusal, spdy, websocket};
pub(super) use crate::spdy::channel;

/// Data and its channel.
pub(super) type Message = (u8, Vec<u8>);

/// Versions over SPDY, best first: v4 reports the result as a Status, those before it as text; v3 brought terminal
/// sizes.
const SPDY: [&str; 4] = [
    "v4.channel.k8s.io",
    "v3.channel.k8s.io",
    "v2.channel.k8s.io",
    "channel.k8s.io",
];

/// How often a client is asked whether it is still there, while it is not listened to because nothing takes what it has sent:
/// the end of its connection would not be noticed.
pub(super) const ASK_EVERY: Duration = Duration::from_secs(2);

/// The streams that the client requested.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestedStreams {
    pub(super) stdin: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
    pub(super) tty: bool,
}

impl RequestedStreams {
    /// Reads the parameters; a terminal has one output only.
    pub(super) fn parse(query: &Query) -> Result<Self, Refusal> {
        let tty = query.flag("tty");
        let wanted = Self {
            stdin: query.flag("input"),
            stdout: query.flag("output"),
            stderr: query.flag("error") && !tty,
            tty,
        };
        if !wanted.stdin && !wanted.stdout && !wanted.stderr {
            return Err(Refusal::bad_request(
                "you must specify at least 1 of stdin, stdout, stderr",
            ));
        }
        Ok(wanted)
    }

    fn channels(self, protocol: &str) -> Vec<u8> {
        let resize = self.tty && !matches!(protocol, "v2.channel.k8s.io" | "channel.k8s.io");
        [
            (channel::ERROR, true),
            (channel::STDIN, self.stdin),
            (channel::STDOUT, self.stdout),
            (channel::STDERR, self.stderr),
            (channel::RESIZE, resize),
        ]
        .into_iter()
        .filter_map(|(channel, wanted)| wanted.then_some(channel))
        .collect()
    }
}

/// A client that is connected.
pub(super) struct Client {
    connection: Connection,
    /// The result is a Status and not a text.
    status: bool,
}

enum Connection {
    Socket(websocket::Socket),
    Spdy(spdy::Session),
}

/// Whether the result is a Status in this version, and not a text.
fn tells_status(protocol: &str) -> bool {
    protocol.starts_with("v4.") || protocol.starts_with("v5.")
}

/// Whether the client asks to upgrade to this protocol.
pub(super) fn asks_for(headers: &HeaderMap, token: &str) -> bool {
    headers
        .get(UPGRADE)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(token.as_bytes()))
}

/// Answers the upgrade, and passes the client to `run` once its streams are open.
pub(super) fn upgrade<F>(
    request: Request<Incoming>,
    wanted: RequestedStreams,
    run: impl FnOnce(Client) -> F + Send + 'static,
) -> Result<Response<Body>, Refusal>
where
    F: Future<Output = ()> + Send,
{
    if asks_for(request.headers(), spdy::TOKEN) {
        return spdy::upgrade(request, &SPDY, move |connection, protocol| async move {
            match spdy::Session::accept(connection, &wanted.channels(protocol)).await {
                Some(session) => {
                    let connection = Connection::Spdy(session);
                    let status = tells_status(protocol);
                    run(Client { connection, status }).await;
                }
                None => tracing::debug!("the client did not open its streams"),
            }
        });
    }
    if !asks_for(request.headers(), "websocket") {
        return Err(Refusal::bad_request(
            "unable to upgrade: the request asks for neither WebSocket nor SPDY/3.1",
        ));
    }
    websocket::upgrade(
        request,
        &websocket::CHANNELS,
        move |stream, protocol| async move {
            let mut socket = websocket::Socket::new(stream, protocol);
            // Signals to the client that the connection is complete.
            let _ = socket.send(channel::STDOUT, &[]).await;
            let connection = Connection::Socket(socket);
            let status = tells_status(protocol);
            run(Client { connection, status }).await;
        },
    )
}

impl Client {
    /// Sends data on a channel; an error means that the client disconnected.
    pub(super) async fn send(&mut self, channel: u8, data: &[u8]) -> Result<(), ()> {
        match &mut self.connection {
            Connection::Socket(socket) => socket.send(channel, data).await,
            Connection::Spdy(session) => session.send(channel, data).await,
        }
    }

    /// The next data and its channel; `None` when the client disconnected. Cancel-safe.
    pub(super) async fn receive(&mut self) -> Option<(u8, Vec<u8>)> {
        match &mut self.connection {
            Connection::Socket(socket) => socket.receive().await,
            Connection::Spdy(session) => session.receive().await,
        }
    }

    /// Sends a message that only asks whether the client is still there; an error means that it is not.
    async fn ask(&mut self) -> Result<(), ()> {
        match &mut self.connection {
            Connection::Socket(socket) => socket.ask().await,
            Connection::Spdy(session) => session.ask().await,
        }
    }

    /// Passes data between the client and a program until the output ends; returns false if the client disconnects
    /// before.
    ///
    /// Input does not hold up output: a program that waits for its output to be read may not read at all. While it does
    /// not, the client is not listened to, but asked whether it is there.
    pub(super) async fn converse(
        &mut self,
        mut output: mpsc::Receiver<Message>,
        input: mpsc::Sender<Message>,
    ) -> bool {
        let mut waiting: Option<Message> = None;
        loop {
            tokio::select! {
                chunk = output.recv() => match chunk {
                    Some((channel, data)) => if self.send(channel, &data).await.is_err() { return false },
                    None => return true,
                },
                permit = input.reserve(), if waiting.is_some() => {
                    // Without a permit the reader has closed, which does not end the session.
                    if let (Ok(permit), Some(message)) = (permit, waiting.take()) {
                        permit.send(message);
                    }
                }
                () = tokio::time::sleep(ASK_EVERY), if waiting.is_some() => {
                    if self.ask().await.is_err() {
                        return false;
                    }
                }
                message = self.receive(), if waiting.is_none() => match message {
                    Some((channel::CLOSE, data)) if data != [channel::STDIN] => {}
                    Some(message) => waiting = Some(message),
                    None => return false,
                },
            }
        }
    }

    /// Reports the result and closes the connection.
    pub(super) async fn finish(mut self, result: &Value) {
        let failed = result["status"] != "Success";
        let text = match self.status {
            true => Some(result.to_string()),
            // Before v4 only failures were told.
            false => result["message"]
                .as_str()
                .filter(|_| failed)
                .map(str::to_owned),
        };
        if let Some(text) = text {
            let _ = self.send(channel::ERROR, text.as_bytes()).await;
        }
        match self.connection {
            Connection::Socket(socket) => socket.close().await,
            Connection::Spdy(session) => session.close().await,
        }
    }
}
