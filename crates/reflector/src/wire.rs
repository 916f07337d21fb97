//! The encoding of requests and responses: protobuf if the server prefers it, otherwise JSON.
//!
//! JSON costs a kube-apiserver more time than protobuf, which its own watches use: for a watch in JSON it encodes each
//! object a second time. Responses in protobuf are converted to JSON text without the fields that are not decoded, so that
//! the same code reads all kinds from all servers: custom resources, and servers without protobuf, respond with JSON to the
//! same request.
//!
//! allot's API server stores objects as JSON, and responds with JSON to clients that permit it (`native`).

use std::pin::Pin;
use std::time::Duration;

use allot_apimachinery::lean::Keep;
use allot_schema::protobuf;
use futures::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, TryStreamExt};
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::client::Body;
use kube::core::Status;
use kube::{Client, Error};
use serde::de::Error as _;

/// The media type of protobuf bodies.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub(crate) const JSON: &str = "application/json";
/// The `Accept` header of requests whose response may be protobuf.
const BOTH: &str = "application/vnd.kubernetes.protobuf,application/json;native=1";
/// The largest event of a watch and the largest object: servers store objects of at most a few megabytes.
pub(crate) const LARGEST_OBJECT: usize = 64 << 20;
/// The largest list, or page of a list: a page has 500 objects.
pub(crate) const LARGEST_LIST: usize = 1 << 30;
/// The largest error: a Status has a few hundred bytes, and some proxies respond with an HTML page.
const LARGEST_STATUS: usize = 1 << 20;
/// The longest time from a request to the last byte of its response. API servers end requests other than watches after a
/// minute (`--request-timeout`).
const ANSWER_LIMIT: Duration = Duration::from_secs(300);

/// A [`Keep`] that keeps every field.
pub fn everything(_of: &str, _field: &str) -> bool {
    true
}

/// Sends a request. `binary`: the response may be protobuf.
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
    let body = match collect(answer.into_body(), LARGEST_STATUS).await {
        Ok(body) => body,
        // The code is known, and matters more.
        Err(Error::Service(error)) => error.to_string().into_bytes(),
        Err(error) => return Err(error),
    };
    let text = match protobuf::is_protobuf(&body) {
        true => json(&body, everything).ok(),
        false => None,
    };
    let text = text.unwrap_or_else(|| String::from_utf8_lossy(&body).into_owned());
    let status = serde_json::from_str(&text).unwrap_or_else(|_| {
        // Proxies respond with other bodies.
        Status::failure(text.trim(), "Failed to parse error data").with_code(code.as_u16())
    });
    Err(Error::Api(Box::new(status)))
}

/// A body of at most so many bytes.
pub(crate) async fn collect(body: Body, largest: usize) -> Result<Vec<u8>, Error> {
    match Limited::new(body, largest).collect().await {
        Ok(collected) => Ok(collected.to_bytes().into()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(refused(format!("an answer of more than {largest} bytes")))
        }
        Err(error) => Err(match error.downcast::<Error>() {
            Ok(error) => *error,
            Err(error) => Error::Service(error),
        }),
    }
}

/// The error of a response that is too large or too slow.
fn refused(why: String) -> Error {
    Error::Service(why.into())
}

/// Sends a request other than a watch, and returns the response as JSON. A response of more than `largest` bytes, or that does
/// not end, is an error.
pub(crate) async fn exchange(
    client: &Client,
    request: Request<Vec<u8>>,
    binary: Option<Keep>,
    largest: usize,
) -> Result<String, Error> {
    in_time(async {
        let answer = send(client, request, binary.is_some()).await?;
        text(answer, binary.unwrap_or(everything), largest).await
    })
    .await
}

/// Waits for the whole response to a request other than a watch; an error if that takes longer than [`ANSWER_LIMIT`].
pub(crate) async fn in_time<T>(
    request: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match tokio::time::timeout(ANSWER_LIMIT, request).await {
        Ok(result) => result,
        Err(_) => Err(refused(format!("no whole answer within {ANSWER_LIMIT:?}"))),
    }
}

/// The body of a response as JSON; an error if it has more than `largest` bytes.
pub(crate) async fn text(
    answer: Response<Body>,
    keep: Keep,
    largest: usize,
) -> Result<String, Error> {
    let body = collect(answer.into_body(), largest).await?;
    if protobuf::is_protobuf(&body) {
        return json(&body, keep);
    }
    String::from_utf8(body).map_err(Error::FromUtf8)
}

fn json(body: &[u8], keep: Keep) -> Result<String, Error> {
    let json = protobuf::to_json(body, keep).map_err(unreadable)?;
    Ok(json.text)
}

fn unreadable(error: protobuf::Error) -> Error {
    Error::SerdeError(serde_json::Error::custom(error))
}

/// Whether a response is in protobuf.
pub(crate) fn is_binary(answer: &Response<Body>) -> bool {
    let kind = answer.headers().get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(PROTOBUF.as_bytes()))
}

type Reader = Pin<Box<dyn AsyncBufRead + Send>>;

/// The events of a watch.
pub(crate) enum Events {
    /// In JSON, one a line.
    Lines(Reader),
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
            false => Self::Lines(reader),
        }
    }

    /// The next event; `None` at the end. An incomplete event is an error.
    pub(crate) async fn next(&mut self) -> Option<std::io::Result<Event>> {
        match self {
            Self::Lines(reader) => line(reader).await.map(|l| l.map(Event::Line)).transpose(),
            Self::Frames(reader) => frame(reader).await.map(|f| f.map(Event::Frame)).transpose(),
        }
    }
}

/// A line without its end; the last one may have none.
async fn line(reader: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<Option<String>> {
    let mut line = Vec::new();
    let mut bounded = reader.take(LARGEST_OBJECT as u64 + 1);
    bounded.read_until(b'\n', &mut line).await?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.len() > LARGEST_OBJECT {
        return Err(too_large(line.len()));
    }
    if line.ends_with(b"\n") {
        line.pop();
        line.pop_if(|last| *last == b'\r');
    }
    let line = String::from_utf8(line);
    let invalid = |error| std::io::Error::new(std::io::ErrorKind::InvalidData, error);
    line.map(Some).map_err(invalid)
}

fn too_large(length: usize) -> std::io::Error {
    let text = format!("an event of {length} bytes");
    std::io::Error::new(std::io::ErrorKind::InvalidData, text)
}

async fn frame(reader: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    if reader.read(&mut length[..1]).await? == 0 {
        return Ok(None);
    }
    reader.read_exact(&mut length[1..]).await?;
    let length = u32::from_be_bytes(length) as usize;
    if length > LARGEST_OBJECT {
        return Err(too_large(length));
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
