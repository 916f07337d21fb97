//! Requests to the API server: GET only, answers of a bounded size, within a bounded time.

use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http::header::{ACCEPT, AUTHORIZATION};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;

/// How long the API server has for an answer: as long as it gives itself (60 s), and a little.
const PATIENCE: Duration = Duration::from_secs(65);
/// The largest answer. A page of 500 slices with 128 devices each has about 40 MiB.
const LARGEST: usize = 96 * 1024 * 1024;
/// How much of a refusal is read.
const REFUSAL: usize = 64 * 1024;
/// The longest line of a watch: an object may have 1.5 MiB in the store, and more with indentation.
const LONGEST_LINE: usize = 8 * 1024 * 1024;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// The page's request is invalid.
    #[error("{0}")]
    Asked(String),
    /// The API server refused, in its own words.
    #[error("{1}")]
    Status(StatusCode, String),
    /// The API server does not answer.
    #[error("the API server does not answer")]
    Silent,
    /// Its answer is not in the API's format.
    #[error("the API server's answer cannot be read: {0}")]
    Unreadable(&'static str),
    /// It took too long.
    #[error("no answer in time")]
    Late,
    /// Others use all that there is.
    #[error("too many requests at the same time")]
    Busy,
}

impl Failed {
    /// The status for the page.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Asked(_) => StatusCode::BAD_REQUEST,
            Self::Status(status, _) if status.is_client_error() => *status,
            Self::Status(..) | Self::Silent | Self::Unreadable(_) => StatusCode::BAD_GATEWAY,
            Self::Late => StatusCode::GATEWAY_TIMEOUT,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// A client with the rights of a reader: the one that there is, or one that passes the reader's token on.
pub fn reader(client: &kube::Client, bearer: Option<HeaderValue>) -> kube::Client {
    let Some(bearer) = bearer else {
        return client.clone();
    };
    let namespace = client.default_namespace().to_owned();
    let client = client.clone();
    let service = tower::service_fn(move |mut request: Request<Body>| {
        request.headers_mut().insert(AUTHORIZATION, bearer.clone());
        let client = client.clone();
        async move { client.send(request).await }
    });
    kube::Client::new(service, namespace)
}

/// Gets an object.
///
/// # Errors
/// There is none, or it cannot be read.
pub async fn get(client: &kube::Client, url: &str) -> Result<Value, Failed> {
    let get = async {
        let mut response = send(client, url).await?;
        let body = read(response.body_mut(), LARGEST).await?;
        serde_json::from_slice(&body).map_err(|_| Failed::Unreadable("it is no JSON"))
    };
    let answer = tokio::time::timeout(PATIENCE, get).await;
    answer.map_err(|_| Failed::Late)?
}

/// Starts a watch; returns its lines as a stream.
///
/// # Errors
/// The watch is refused.
pub async fn watch(client: &kube::Client, url: &str) -> Result<Lines, Failed> {
    let response = tokio::time::timeout(PATIENCE, send(client, url)).await;
    let response = response.map_err(|_| Failed::Late)??;
    Ok(Lines {
        body: response.into_body(),
        buffer: BytesMut::new(),
        seen: 0,
    })
}

async fn send(client: &kube::Client, url: &str) -> Result<Response<Body>, Failed> {
    let request = Request::get(url).header(ACCEPT, "application/json");
    let request = request.body(Body::empty());
    let request = request.map_err(|_| Failed::Asked("no such path".to_owned()))?;
    let mut response = client.send(request).await.map_err(|error| {
        tracing::warn!(%error, "the API server does not answer");
        Failed::Silent
    })?;
    let status = response.status();
    if status == StatusCode::OK {
        return Ok(response);
    }
    let body = read(response.body_mut(), REFUSAL).await.unwrap_or_default();
    let told: Value = serde_json::from_slice(&body).unwrap_or_default();
    let message = told["message"].as_str().map(str::to_owned);
    let message = message.unwrap_or_else(|| format!("the API server answered {status}"));
    Err(Failed::Status(status, message))
}

async fn read(body: &mut Body, most: usize) -> Result<Vec<u8>, Failed> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Failed::Silent)?;
        if let Some(data) = frame.data_ref() {
            if bytes.len() + data.len() > most {
                return Err(Failed::Unreadable("it is too large"));
            }
            bytes.extend_from_slice(data);
        }
    }
    Ok(bytes)
}

/// The lines of a body.
pub struct Lines<B = Body> {
    body: B,
    buffer: BytesMut,
    /// So much of the buffer has no end of a line in it.
    seen: usize,
}

impl<B: http_body::Body<Data = Bytes> + Unpin> Lines<B> {
    /// The next line; `None` at the end, where an incomplete line is dropped.
    ///
    /// # Errors
    /// The connection broke, or the line is too long.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Failed> {
        loop {
            let rest = &self.buffer[self.seen..];
            if let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(self.seen + at).freeze();
                self.buffer.advance(1);
                self.seen = 0;
                return Ok(Some(line));
            }
            self.seen = self.buffer.len();
            if self.seen > LONGEST_LINE {
                return Err(Failed::Unreadable("an event is too large"));
            }
            let Some(frame) = self.body.frame().await else {
                return Ok(None);
            };
            if let Ok(data) = frame.map_err(|_| Failed::Silent)?.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body::Frame;
    use http_body_util::StreamBody;

    use super::*;

    fn lines(
        chunks: &[&'static str],
    ) -> Lines<impl http_body::Body<Data = Bytes, Error = Infallible> + Unpin> {
        let frames: Vec<_> = (chunks.iter())
            .map(|chunk| Ok(Frame::data(Bytes::from_static(chunk.as_bytes()))))
            .collect();
        Lines {
            body: StreamBody::new(futures::stream::iter(frames)),
            buffer: BytesMut::new(),
            seen: 0,
        }
    }

    #[tokio::test]
    async fn lines_are_found_over_the_borders_of_chunks() {
        let mut lines = lines(&["o", "ne\ntwo\n\nth", "ree\nrest"]);
        let mut found = Vec::new();
        while let Some(line) = lines.next().await.expect("a line") {
            found.push(String::from_utf8_lossy(&line).into_owned());
        }
        assert_eq!(found, ["one", "two", "", "three"]);
    }

    #[tokio::test]
    async fn a_line_without_an_end_is_given_up() {
        let chunk: &'static str = Box::leak("x".repeat(LONGEST_LINE / 4).into_boxed_str());
        let error = lines(&[chunk; 8]).next().await.expect_err("too long");
        assert!(matches!(error, Failed::Unreadable(_)), "{error}");
    }
}
