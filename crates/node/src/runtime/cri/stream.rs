//! Exec, attach and port-forward streams: the runtime returns a URL at which it serves them over SPDY.
//!
//! They are converted to the format of other runtimes: frames over a local socket for processes, raw bytes for ports.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures::{SinkExt as _, StreamExt as _};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio_util::codec::Framed;
use tokio_util::sync::CancellationToken;

use crate::frames;
use crate::runtime::Connection;
use crate::spdy::{Codec, Frame, PROTOCOL_VERSION, TOKEN, channel, kind};

/// Timeout for establishing the connection to the runtime.
const CONNECT: Duration = Duration::from_secs(30);
/// Maximum length of an error message from the runtime that is reported.
const SHOWN: usize = 4096;
/// Maximum number of queued outgoing frames; reading from the client is paused while the queue is full.
const OUTGOING: usize = 16;
/// The result of a process whose streams ended without one.
const NO_RESULT: &str =
    "the container runtime ended the streams before it reported how the program ended";
/// Maximum length of a process's `Status` result.
const RESULT: usize = 64 * 1024;

type Spdy = Framed<TokioIo<hyper::upgrade::Upgraded>, Codec>;

/// Connects to a streaming URL of the runtime and negotiates the stream protocol.
async fn connect(url: &str, protocol: &'static str) -> io::Result<Spdy> {
    match tokio::time::timeout(CONNECT, upgrade(url, protocol)).await {
        Ok(result) => result,
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the container runtime did not accept the connection for streams",
        )),
    }
}

async fn upgrade(url: &str, protocol: &'static str) -> io::Result<Spdy> {
    let invalid = |why: &str| io::Error::other(format!("URL {url:?} for streams: {why}"));
    let uri: Uri = url.parse().map_err(|_| invalid("malformed"))?;
    if uri.scheme_str() != Some("http") {
        return Err(invalid("only plain HTTP to this machine is supported"));
    }
    let host = uri.host().ok_or_else(|| invalid("no host"))?;
    let port = uri.port_u16().unwrap_or(80);
    let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "connection for streams");
        }
    });
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::post(path)
        .header("host", format!("{host}:{port}"))
        .header("connection", "Upgrade")
        .header("upgrade", TOKEN)
        .header(PROTOCOL_VERSION, protocol)
        .body(Empty::<Bytes>::new())
        .map_err(io::Error::other)?;
    let response = sender
        .send_request(request)
        .await
        .map_err(io::Error::other)?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let status = response.status();
        let body = Limited::new(response.into_body(), SHOWN).collect().await;
        let text = body.map_or_else(|_| Bytes::new(), |body| body.to_bytes());
        let text = String::from_utf8_lossy(&text);
        return Err(invalid(&format!("{status}: {}", text.trim())));
    }
    let upgraded = hyper::upgrade::on(response)
        .await
        .map_err(io::Error::other)?;
    Ok(Framed::new(TokioIo::new(upgraded), Codec::new()))
}

fn end(id: u32) -> Frame {
    Frame::Data {
        id,
        data: Bytes::new(),
        fin: true,
    }
}

/// Streams of a process as frames; see [`crate::runtime::Exec::Stream`]. `channels` are the channels that the process uses.
pub(super) async fn program(url: &str, channels: &[u8]) -> io::Result<UnixStream> {
    let mut spdy = connect(url, "v4.channel.k8s.io").await?;
    let mut streams: HashMap<u32, u8> = HashMap::new();
    for (index, channel) in (0u32..).zip(channels) {
        // Streams opened by the client have odd IDs.
        let id = 2 * index + 1;
        let name = kind(*channel).unwrap_or_default().to_owned();
        let headers = vec![("streamtype".to_owned(), name)];
        let fin = false;
        spdy.send(Frame::Open { id, headers, fin })
            .await
            .map_err(io::Error::other)?;
        streams.insert(id, *channel);
    }
    let (ours, theirs) = UnixStream::pair()?;
    tokio::spawn(pass_program(spdy, streams, ours));
    Ok(theirs)
}

/// Forwards frames between the runtime and the client until the process has exited or either side has disconnected.
async fn pass_program(spdy: Spdy, streams: HashMap<u32, u8>, local: UnixStream) {
    let (mut sink, mut received) = spdy.split();
    let (mut reader, mut writer) = local.into_split();
    let ids: HashMap<u8, u32> = streams
        .iter()
        .map(|(id, channel)| (*channel, *id))
        .collect();
    let (out, mut outgoing) = mpsc::channel::<Frame>(OUTGOING);
    let send = async {
        while let Some(frame) = outgoing.recv().await {
            if sink.send(frame).await.is_err() {
                // What the runtime has sent before it ended the connection may still be unread.
                std::future::pending::<()>().await;
            }
        }
    };
    let pongs = out.clone();
    let type_in = async {
        while let Some((of, data)) = frames::read(&mut reader).await {
            let (of, fin) = match (of, data.first()) {
                (channel::CLOSE, Some(ended)) => (*ended, true),
                _ => (of, false),
            };
            let Some(id) = ids.get(&of).copied() else {
                continue;
            };
            let data = if fin { Bytes::new() } else { data.into() };
            if out.send(Frame::Data { id, data, fin }).await.is_err() {
                return;
            }
        }
    };
    let show = async {
        let mut open: Vec<u8> = streams
            .values()
            .copied()
            .filter(|it| is_output(*it))
            .collect();
        // An empty result is a success only if the runtime has ended its stream.
        let (mut result, mut decided) = (Vec::new(), false);
        while !open.is_empty() {
            let Some(Ok(frame)) = received.next().await else {
                break;
            };
            let (id, data, ended, aborted) = match frame {
                Frame::Data { id, data, fin } => (id, data, fin, false),
                // Also sent for every stream when the runtime closes the connection after the result.
                Frame::Reset { id, .. } => (id, Bytes::new(), false, true),
                Frame::Ping(id) => {
                    if pongs.send(Frame::Ping(id)).await.is_err() {
                        break;
                    }
                    continue;
                }
                _ => continue,
            };
            let Some(of) = streams.get(&id).copied() else {
                continue;
            };
            if of == channel::ERROR {
                let room = RESULT.saturating_sub(result.len());
                result.extend_from_slice(&data[..data.len().min(room)]);
                decided |= ended || !result.is_empty();
            } else if !data.is_empty() && frames::write(&mut writer, of, &data).await.is_err() {
                return;
            }
            if ended || aborted {
                open.retain(|it| *it != of);
            }
        }
        if !decided {
            result = NO_RESULT.into();
        }
        // The last frame, which is sent even if the result is empty.
        let _ = frames::write(&mut writer, channel::ERROR, &result).await;
        let _ = writer.shutdown().await;
    };
    // The client signals the end of input with a separate frame, so the end of the frames means that it has disconnected.
    tokio::select! {
        () = show => {}
        () = type_in => {}
        () = send => {}
    }
}

fn is_output(of: u8) -> bool {
    matches!(of, channel::STDOUT | channel::STDERR | channel::ERROR)
}

/// Opens a connection to a port of a pod.
pub(super) async fn port(url: &str, port: u16) -> io::Result<Connection> {
    const ERROR: u32 = 1;
    const DATA: u32 = 3;
    let mut spdy = connect(url, "portforward.k8s.io").await?;
    for (id, kind) in [(ERROR, "error"), (DATA, "data")] {
        let headers = [
            ("streamtype", kind.to_owned()),
            ("port", port.to_string()),
            ("requestid", "0".to_owned()),
        ];
        let headers = headers
            .map(|(name, value)| (name.to_owned(), value))
            .to_vec();
        let fin = false;
        spdy.send(Frame::Open { id, headers, fin })
            .await
            .map_err(io::Error::other)?;
    }
    // The client never sends data on the error stream.
    spdy.send(end(ERROR)).await.map_err(io::Error::other)?;
    let (ours, stream) = UnixStream::pair()?;
    let (tell, trouble) = oneshot::channel();
    let gone = CancellationToken::new();
    let guard = gone.clone().drop_guard();
    let pass = pass_port(spdy, ours, (ERROR, DATA), tell);
    tokio::spawn(async move { gone.run_until_cancelled(pass).await });
    Ok(Connection {
        stream,
        trouble,
        guard,
    })
}

/// Forwards bytes between a port and its client until both directions have ended or either side has disconnected.
async fn pass_port(
    spdy: Spdy,
    local: UnixStream,
    (error, data): (u32, u32),
    tell: oneshot::Sender<String>,
) {
    let (mut sink, mut received) = spdy.split();
    let (mut reader, mut writer) = local.into_split();
    let (out, mut outgoing) = mpsc::channel::<Frame>(OUTGOING);
    let pongs = out.clone();
    let send = async {
        while let Some(frame) = outgoing.recv().await {
            if sink.send(frame).await.is_err() {
                return;
            }
        }
    };
    let towards_pod = async move {
        let mut buffer = vec![0; 32 * 1024];
        while let Ok(n @ 1..) = reader.read(&mut buffer).await {
            let piece = Bytes::copy_from_slice(&buffer[..n]);
            let frame = Frame::Data {
                id: data,
                data: piece,
                fin: false,
            };
            if out.send(frame).await.is_err() {
                return;
            }
        }
        let _ = out.send(end(data)).await;
    };
    let towards_client = async move {
        let (mut text, mut open) = (Vec::new(), vec![error, data]);
        while !open.is_empty() {
            let Some(Ok(frame)) = received.next().await else {
                break;
            };
            let (id, piece, fin) = match frame {
                Frame::Data { id, data, fin } => (id, data, fin),
                Frame::Reset { id, .. } => (id, Bytes::new(), true),
                Frame::Ping(id) => {
                    if pongs.send(Frame::Ping(id)).await.is_err() {
                        break;
                    }
                    continue;
                }
                _ => continue,
            };
            if id == error {
                let room = SHOWN.saturating_sub(text.len());
                text.extend_from_slice(&piece[..piece.len().min(room)]);
            } else if id == data && writer.write_all(&piece).await.is_err() {
                break;
            }
            if fin {
                open.retain(|it| *it != id);
            }
        }
        if !text.is_empty() {
            // Sent before the stream ends, so that the message is available once the client sees the end. The receiver may
            // already have been dropped.
            let _ = tell.send(String::from_utf8_lossy(&text).trim().to_owned());
        }
        let _ = writer.shutdown().await;
    };
    // The client may have finished sending while it still receives.
    let towards_pod = async {
        tokio::join!(send, towards_pod);
    };
    tokio::select! {
        () = towards_client => {}
        () = towards_pod => {}
    }
}

#[cfg(test)]
mod tests;
