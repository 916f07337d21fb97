//! The encoding of requests and answers: protobuf where the server prefers it, else JSON.
//!
//! JSON costs a kube-apiserver more time than protobuf, in which its own watches are: for a watch in JSON it encodes each
//! object a second time. Answers in protobuf become JSON text without the fields that are not read, so that all kinds are
//! read by the same code whatever the server speaks: custom resources and servers that do not know protobuf answer in
//! JSON to the same request.
//!
//! allot's own server stores objects as JSON, and answers in it to clients that permit it (`native`).

use std::pin::Pin;

use allot_apimachinery::lean::Keep;
use allot_schema::protobuf;
use futures::io::Lines;
use futures::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, StreamExt, TryStreamExt};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::core::Status;
use kube::{Client, Error};
use serde::de::Error as _;

/// The media type of protobuf bodies.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub(crate) const JSON: &str = "application/json";
/// What is accepted where protobuf can be read.
const BOTH: &str = "application/vnd.kubernetes.protobuf,application/json;native=1";
/// No event of a watch is larger: servers store objects of a few megabytes at most.
const LARGEST_EVENT: usize = 64 << 20;

/// A [`Keep`] that keeps every field.
pub fn everything(_of: &str, _field: &str) -> bool {
    true
}

/// Sends a request. `binary`: the answer can be read in protobuf.
pub(crate) async fn send(
    client: &Client,
    request: Request<Vec<u8>>,
    binary: bool,
) -> Result<Response<Body>, Error> {
    let mut request = request.map(Body::from);
    if binary {
        let both = HeaderValue::from_static(BOTH);
        request.headers_mut().insert(ACCEPT, both);
    }
    let answer = client.send(request).await?;
    let code = answer.status();
    if !code.is_client_error() && !code.is_server_error() {
        return Ok(answer);
    }
    let body = answer.into_body().collect().await?.to_bytes();
    let text = match protobuf::is_protobuf(&body) {
        true => json(&body, everything).ok(),
        false => None,
    };
    let text = text.unwrap_or_else(|| String::from_utf8_lossy(&body).into_owned());
    let status = serde_json::from_str(&text).unwrap_or_else(|_| {
        // Proxies answer in other ways.
        Status::failure(text.trim(), "Failed to parse error data").with_code(code.as_u16())
    });
    Err(Error::Api(Box::new(status)))
}

/// The body of an answer as JSON.
pub(crate) async fn text(answer: Response<Body>, keep: Keep) -> Result<String, Error> {
    let body = answer.into_body().collect().await?.to_bytes();
    if protobuf::is_protobuf(&body) {
        return json(&body, keep);
    }
    String::from_utf8(body.into()).map_err(Error::FromUtf8)
}

fn json(body: &[u8], keep: Keep) -> Result<String, Error> {
    let json = protobuf::to_json(body, keep).map_err(unreadable)?;
    Ok(json.text)
}

fn unreadable(error: protobuf::Error) -> Error {
    Error::SerdeError(serde_json::Error::custom(error))
}

/// Whether an answer is in protobuf.
pub(crate) fn is_binary(answer: &Response<Body>) -> bool {
    let kind = answer.headers().get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(PROTOBUF.as_bytes()))
}

type Reader = Pin<Box<dyn AsyncBufRead + Send>>;

/// The events of a watch.
pub(crate) enum Events {
    /// In JSON, one a line.
    Lines(Lines<Reader>),
    /// In protobuf, each with its length before it.
    Frames(Reader),
}

/// An event of a watch.
pub(crate) enum Event {
    /// In JSON.
    Line(String),
    /// In protobuf: its message.
    Frame(Vec<u8>),
}

impl Events {
    pub(crate) fn of(answer: Response<Body>) -> Self {
        let binary = is_binary(&answer);
        let body = answer.into_body().into_data_stream();
        let reader: Reader = Box::pin(body.map_err(std::io::Error::other).into_async_read());
        match binary {
            true => Self::Frames(reader),
            false => Self::Lines(reader.lines()),
        }
    }

    /// The next event; `None` at the end. An event that is cut off is an error.
    pub(crate) async fn next(&mut self) -> Option<std::io::Result<Event>> {
        match self {
            Self::Lines(lines) => Some(lines.next().await?.map(Event::Line)),
            Self::Frames(reader) => frame(reader).await.map(|f| f.map(Event::Frame)).transpose(),
        }
    }
}

async fn frame(reader: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    if reader.read(&mut length[..1]).await? == 0 {
        return Ok(None);
    }
    reader.read_exact(&mut length[1..]).await?;
    let length = u32::from_be_bytes(length) as usize;
    if length > LARGEST_EVENT {
        let text = format!("an event of {length} bytes");
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, text));
    }
    let mut message = Vec::new();
    // Grows with what arrives: the length alone takes no memory.
    reader.take(length as u64).read_to_end(&mut message).await?;
    match message.len() == length {
        true => Ok(Some(message)),
        false => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}

/// The type of an event in protobuf, and its object in JSON.
pub(crate) fn event(message: &[u8], keep: Keep) -> Result<(&str, String), Error> {
    let (kind, object) = protobuf::event(message).map_err(unreadable)?;
    Ok((kind, json(object, keep)?))
}

#[cfg(test)]
mod tests;
