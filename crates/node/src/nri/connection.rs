//! Calls over one connection, in both directions.

use std::collections::HashMap;
use std::time::Duration;

use allot_protos::ttrpc::{Request, Response, Status};
use parking_lot::Mutex;
use prost::Message as _;
use prost::encoding::{DecodeContext, decode_key, skip_field};
use tokio::io::AsyncWriteExt as _;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::frames::{LONGEST, Message, PLUGIN, REQUEST, RESPONSE, RUNTIME, encode};

/// Codes of gRPC, which ttrpc uses.
pub(super) const UNKNOWN: i32 = 2;
pub(super) const INVALID: i32 = 3;
pub(super) const EXHAUSTED: i32 = 8;
pub(super) const UNIMPLEMENTED: i32 = 12;

/// The most bytes of a ttrpc request around its payload: names and numbers.
const ENVELOPE: usize = 1024;
/// The most entries of what a plugin sends. One without content has two bytes there, and a thousand in memory: a message of
/// 4 MiB would need 2 GiB.
const MOST_ENTRIES: usize = 10_000;

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// The connection has ended.
    #[error("the connection is closed")]
    Closed,
    /// There was no answer in time.
    #[error("no answer within {} seconds", .0.as_secs())]
    Late(Duration),
    /// The answer is not of its type.
    #[error("the answer cannot be read: {0}")]
    Unreadable(#[from] prost::DecodeError),
    /// The answer has too many entries.
    #[error("more than {MOST_ENTRIES} entries")]
    TooMany,
    /// The message is longer than ttrpc permits.
    #[error("the request has {0} bytes, more than {LONGEST}")]
    TooLong(usize),
    /// The plugin has refused.
    #[error("{message}")]
    Refused {
        /// The code of gRPC.
        code: i32,
        /// The plugin's words.
        message: String,
    },
}

impl CallError {
    /// Whether nothing more can be expected of the plugin.
    pub(super) fn is_fatal(&self) -> bool {
        match self {
            Self::Closed | Self::Late(_) | Self::Unreadable(_) | Self::TooMany => true,
            Self::TooLong(_) | Self::Refused { .. } => false,
        }
    }
}

/// The side of a connection that sends.
pub(super) struct Connection {
    socket: tokio::sync::Mutex<OwnedWriteHalf>,
    calls: Mutex<Calls>,
    closed: CancellationToken,
}

/// The calls that wait for an answer.
#[derive(Default)]
struct Calls {
    last: u32,
    waiting: HashMap<u32, oneshot::Sender<Response>>,
}

impl Connection {
    pub(super) fn new(socket: OwnedWriteHalf) -> Self {
        Self {
            socket: tokio::sync::Mutex::new(socket),
            calls: Mutex::default(),
            closed: CancellationToken::new(),
        }
    }

    /// Ends the connection, and all calls.
    pub(super) fn close(&self) {
        self.closed.cancel();
        self.calls.lock().waiting.clear();
    }

    /// Ends the connection, and lets the plugin know: it is in the list of plugins until the next event, and with it the socket
    /// would stay open so long. A plugin that connects again only then has no part in that event.
    pub(super) async fn end(&self) {
        self.close();
        // What was being sent ends with the connection, and no longer has the socket.
        let _ = self.socket.lock().await.shutdown().await;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    /// Completes when the connection is closed.
    pub(super) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Calls a method of the plugin.
    ///
    /// # Errors
    /// It has no result. After an error that is [fatal](CallError::is_fatal) the connection has to be closed.
    pub(super) async fn call<Q: prost::Message, A: prost::Message + Default>(
        &self,
        method: &str,
        request: &Q,
        within: Duration,
    ) -> Result<A, CallError> {
        let length = request.encoded_len();
        if length + ENVELOPE > LONGEST {
            return Err(CallError::TooLong(length));
        }
        let content = Request {
            service: super::PLUGIN_SERVICE.to_owned(),
            method: method.to_owned(),
            payload: request.encode_to_vec(),
            timeout_nano: i64::try_from(within.as_nanos()).unwrap_or_default(),
            metadata: Vec::new(),
        };
        let (sender, answer) = oneshot::channel();
        let call = {
            let mut calls = self.calls.lock();
            // Those of the side that calls are odd.
            let next = match calls.last {
                0 => Some(1),
                last => last.checked_add(2),
            };
            let next = next
                .filter(|_| !self.is_closed())
                .ok_or(CallError::Closed)?;
            calls.last = next;
            calls.waiting.insert(next, sender);
            next
        };
        let message = Message {
            call,
            kind: REQUEST,
            content: content.encode_to_vec(),
        };
        let answered = async {
            self.send(PLUGIN, &message).await?;
            answer.await.map_err(|_| CallError::Closed)
        };
        let answered = tokio::select! {
            answered = tokio::time::timeout(within, answered) => answered,
            () = self.closed() => Ok(Err(CallError::Closed)),
        };
        self.calls.lock().waiting.remove(&call);
        let response = answered.map_err(|_| CallError::Late(within))??;
        match response.status.filter(|status| status.code != 0) {
            Some(Status { code, message }) => {
                // It is logged, and may have megabytes.
                let message = crate::events::shorten(message);
                Err(CallError::Refused { code, message })
            }
            None => read(&response.payload),
        }
    }

    async fn send(&self, conversation: u32, message: &Message) -> Result<(), CallError> {
        let frames = encode(conversation, message);
        let mut socket = self.socket.lock().await;
        socket
            .write_all(&frames)
            .await
            .map_err(|_| CallError::Closed)
    }

    /// Takes the answer to a call. One that is not waited for any longer is dropped.
    ///
    /// # Errors
    /// It is not the answer to a call.
    pub(super) fn answered(&self, message: &Message) -> Result<(), CallError> {
        if message.kind != RESPONSE {
            return Err(CallError::Closed);
        }
        let response = Response::decode(&*message.content)?;
        let waiting = self.calls.lock().waiting.remove(&message.call);
        if let Some(waiting) = waiting {
            // The call may have ended at this moment.
            let _ = waiting.send(response);
        }
        Ok(())
    }

    /// Answers a call of the plugin. A plugin that does not read within the time is closed.
    pub(super) async fn answer(
        &self,
        call: u32,
        answer: Result<Vec<u8>, Status>,
        within: Duration,
    ) {
        let response = match answer {
            Ok(payload) => Response {
                status: None,
                payload,
            },
            Err(status) => Response {
                status: Some(status),
                payload: Vec::new(),
            },
        };
        let message = Message {
            call,
            kind: RESPONSE,
            content: response.encode_to_vec(),
        };
        let sent = tokio::time::timeout(within, self.send(RUNTIME, &message)).await;
        if !matches!(sent, Ok(Ok(()))) {
            self.close();
        }
    }
}

/// Reads what a plugin sends.
///
/// # Errors
/// It is something else, or has too many entries.
pub(super) fn read<M: prost::Message + Default>(bytes: &[u8]) -> Result<M, CallError> {
    let mut rest = bytes;
    let mut entries = 0;
    while !rest.is_empty() {
        let (tag, kind) = decode_key(&mut rest)?;
        skip_field(kind, tag, &mut rest, DecodeContext::default())?;
        entries += 1;
        if entries > MOST_ENTRIES {
            return Err(CallError::TooMany);
        }
    }
    Ok(M::decode(bytes)?)
}

/// An answer that refuses.
pub(super) fn refuse(code: i32, message: impl Into<String>) -> Status {
    Status {
        code,
        message: message.into(),
    }
}
