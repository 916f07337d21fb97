//! A command or an attachment over SPDY: one stream for each of input, outputs, result and terminal size.

use std::time::Duration;

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio_util::codec::Framed;

use super::{ACCEPTED_VERSIONS, ASK, Codec, Frame, PROTOCOL_VERSION, TOKEN};
use crate::server::{Body, Refusal};
use crate::spdy::{carried, channel};

/// How long a client may take to open its streams.
const OPENING: Duration = Duration::from_secs(30);

type Connection = Framed<TokioIo<hyper::upgrade::Upgraded>, Codec>;

/// Answers the upgrade with the first protocol of the client that is in `known`, and passes it and the connection to
/// `run`.
pub(in crate::server) fn upgrade<F>(
    request: Request<Incoming>,
    known: &'static [&'static str],
    run: impl FnOnce(Connection, &'static str) -> F + Send + 'static,
) -> Result<Response<Body>, Refusal>
where
    F: Future<Output = ()> + Send,
{
    let mut response = Response::new(Empty::new().map_err(|never| match never {}).boxed());
    let Some(protocol) = choose(request.headers(), known) else {
        *response.status_mut() = StatusCode::FORBIDDEN;
        for protocol in known {
            let value = HeaderValue::from_static(protocol);
            response.headers_mut().append(ACCEPTED_VERSIONS, value);
        }
        return Ok(response);
    };
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(TOKEN));
    headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(protocol));
    tokio::spawn(async move {
        match hyper::upgrade::on(request).await {
            Ok(upgraded) => {
                run(Framed::new(TokioIo::new(upgraded), Codec::new()), protocol).await;
            }
            Err(error) => tracing::debug!(%error, "upgrade"),
        }
    });
    Ok(response)
}

fn choose(headers: &HeaderMap, known: &'static [&'static str]) -> Option<&'static str> {
    let mut offered = headers
        .get_all(PROTOCOL_VERSION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(str::trim))
        .peekable();
    if offered.peek().is_none() {
        // The oldest clients name none and speak the oldest.
        return known.last().copied();
    }
    offered.find_map(|offer| known.iter().find(|known| **known == offer).copied())
}

/// The streams of a command.
pub(in crate::server) struct Session {
    connection: Connection,
    /// Ids of the open streams and what they carry.
    streams: Vec<(u32, u8)>,
    /// The channel that ended with the data that was received last.
    ended: Option<u8>,
}

impl Session {
    /// Waits until the client has opened a stream for each of these channels.
    pub(in crate::server) async fn accept(
        mut connection: Connection,
        wanted: &[u8],
    ) -> Option<Self> {
        let mut streams: Vec<(u32, u8)> = Vec::new();
        let opening = async {
            while streams.len() < wanted.len() {
                match connection.next().await?.ok()? {
                    Frame::Open { id, headers, .. } => {
                        let kind = headers.iter().find(|(name, _)| name == "streamtype");
                        let channel = kind.and_then(|(_, kind)| carried(kind))?;
                        if !wanted.contains(&channel)
                            || streams.iter().any(|(_, known)| *known == channel)
                        {
                            return None;
                        }
                        connection.send(Frame::Reply { id }).await.ok()?;
                        streams.push((id, channel));
                    }
                    ping @ Frame::Ping(_) => connection.send(ping).await.ok()?,
                    _ => {}
                }
            }
            Some(())
        };
        match tokio::time::timeout(OPENING, opening).await {
            Ok(Some(())) => Some(Self {
                connection,
                streams,
                ended: None,
            }),
            _ => None,
        }
    }

    /// Sends data on a channel; does nothing if the client did not open that channel.
    pub(in crate::server) async fn send(&mut self, channel: u8, data: &[u8]) -> Result<(), ()> {
        let stream = self.streams.iter().find(|(_, known)| *known == channel);
        let Some((id, _)) = stream.filter(|_| !data.is_empty()) else {
            return Ok(());
        };
        let frame = Frame::Data {
            id: *id,
            data: Bytes::copy_from_slice(data),
            fin: false,
        };
        self.connection.send(frame).await.map_err(drop)
    }

    /// Sends a ping; an error means that the client disconnected.
    pub(in crate::server) async fn ask(&mut self) -> Result<(), ()> {
        self.connection.send(ASK).await.map_err(drop)
    }

    /// The next data and its channel, in the format of the WebSocket protocol; `None` when the client disconnected.
    /// Cancel-safe.
    pub(in crate::server) async fn receive(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            if let Some(channel) = self.ended.take() {
                return Some((channel::CLOSE, vec![channel]));
            }
            match self.connection.next().await?.ok()? {
                Frame::Data { id, data, fin } => {
                    let channel = self.channel(id);
                    self.ended = channel.filter(|_| fin);
                    if let Some(channel) = channel.filter(|_| !data.is_empty()) {
                        return Some((channel, data.to_vec()));
                    }
                }
                Frame::Reset { id, .. } => self.ended = self.channel(id),
                ping @ Frame::Ping(_) if ping != ASK => self.connection.send(ping).await.ok()?,
                _ => {}
            }
        }
    }

    fn channel(&self, id: u32) -> Option<u8> {
        let stream = self.streams.iter().find(|(known, _)| *known == id);
        stream.map(|(_, channel)| *channel)
    }

    /// Ends all streams, and waits until the client has heard it.
    pub(in crate::server) async fn close(mut self) {
        for (id, _) in std::mem::take(&mut self.streams) {
            let data = Bytes::new();
            let end = Frame::Data {
                id,
                data,
                fin: true,
            };
            let _ = self.connection.feed(end).await;
        }
        let last = 0;
        let _ = self.connection.send(Frame::GoAway { last }).await;
        let drain = async { while let Some(Ok(_)) = self.connection.next().await {} };
        let _ = tokio::time::timeout(Duration::from_secs(5), drain).await;
    }
}
