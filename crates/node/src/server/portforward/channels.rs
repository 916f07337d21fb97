//! Forwarding over WebSocket channels: the query names the ports, each has a channel for data and one for what went
//! wrong, and the first message on both is the port as two bytes, little-endian.

use std::collections::HashMap;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{Dialled, Target};
use crate::server::Query;
use crate::server::streams::ASK_EVERY;
use crate::server::websocket::Socket;

/// Limit of queued chunks for the client.
const OUTGOING: usize = 32;

/// Where what the client sends is written, by the channel.
type Inputs = HashMap<u8, Box<dyn AsyncWrite + Send + Unpin>>;

/// The ports of the query; repeated or joined by commas.
pub(super) fn ports(query: &Query) -> Result<Vec<u16>, String> {
    let named = query.all("ports");
    let ports: Vec<u16> = named
        .iter()
        .flat_map(|list| list.split(','))
        .map(|text| match text.parse() {
            Ok(port @ 1..) => Ok(port),
            _ => Err(format!("invalid port {text:?}")),
        })
        .collect::<Result<_, _>>()?;
    // Two channels each, and a channel is a byte.
    if ports.len() > 120 {
        return Err("too many ports".into());
    }
    Ok(ports)
}

/// Serves until the client disconnects or every connection has ended.
pub(super) async fn run(mut socket: Socket, ports: &[u16], target: Target) {
    let (out, mut outgoing) = mpsc::channel::<(u8, Vec<u8>)>(OUTGOING);
    let mut inputs = Inputs::new();
    let mut readers = JoinSet::new();
    for (index, port) in ports.iter().enumerate() {
        // At most 120 ports: both fit.
        let (data, error) = (index as u8 * 2, index as u8 * 2 + 1);
        for channel in [data, error] {
            if socket.send(channel, &port.to_le_bytes()).await.is_err() {
                return;
            }
        }
        match target.dial(*port).await {
            Ok(dialled) => {
                let Dialled {
                    halves: (mut reader, writer),
                    mut trouble,
                    _guard,
                } = dialled;
                inputs.insert(data, writer);
                let out = out.clone();
                readers.spawn(async move {
                    let _guard = _guard;
                    let mut buffer = vec![0; 32 * 1024];
                    while let Ok(n @ 1..) = reader.read(&mut buffer).await {
                        if out.send((data, buffer[..n].to_vec())).await.is_err() {
                            return;
                        }
                    }
                    if let Some(text) = Dialled::trouble(&mut trouble) {
                        let _ = out.send((error, text.into_bytes())).await;
                    }
                });
            }
            Err(text) => {
                if socket.send(error, text.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    }
    drop(out);
    // What the client has sent and no port has taken yet, and its channel.
    let mut waiting: Option<(u8, Bytes)> = None;
    loop {
        tokio::select! {
            chunk = outgoing.recv() => match chunk {
                Some((channel, data)) => if socket.send(channel, &data).await.is_err() { return },
                None => break,
            },
            // Meanwhile output is passed on: a program that waits for that may not read before.
            () = write(&mut inputs, &mut waiting), if waiting.is_some() => {}
            // While the pod does not read, the client is not listened to, but asked whether it is there.
            () = tokio::time::sleep(ASK_EVERY), if waiting.is_some() => {
                if socket.ask().await.is_err() {
                    return;
                }
            }
            message = socket.receive(), if waiting.is_none() => {
                let Some((channel, data)) = message else { return };
                waiting = (!data.is_empty()).then(|| (channel, data.into()));
            }
        }
    }
    socket.close().await;
}

/// Writes a part of what waits. Nothing waits for a port that takes no more. Cancel-safe.
async fn write(inputs: &mut Inputs, waiting: &mut Option<(u8, Bytes)>) {
    let Some((channel, data)) = waiting else {
        return;
    };
    let taken = match inputs.get_mut(channel) {
        Some(input) => matches!(input.write_buf(data).await, Ok(1..)),
        None => false,
    };
    if !taken {
        inputs.remove(channel);
    }
    if !taken || data.is_empty() {
        *waiting = None;
    }
}
