//! Request bodies: read up to the limit, and discarded if they are not used.

use std::pin::Pin;
use std::sync::Arc;

use allot_apimachinery::Status;
use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::Body as HttpBody;
use http_body_util::BodyExt;
use tokio::sync::Semaphore;

use crate::error::{ApiError, Result};
use crate::limits::{DISCARD_BYTES, DISCARD_TIME, MAX_BODY};

/// The body of a request.
pub struct Upload<B> {
    /// `None` at the end.
    body: Option<Pin<Box<B>>>,
    announced: Option<usize>,
    /// The client waits for `100 Continue`.
    waits: bool,
}

impl<B> Upload<B>
where
    B: HttpBody + Send + 'static,
    B::Data: Send,
    B::Error: std::fmt::Display,
{
    /// The body of a request with these headers.
    pub fn new(body: B, headers: &HeaderMap) -> Self {
        let text = |name| headers.get(name)?.to_str().ok();
        let expected = text(http::header::EXPECT).unwrap_or_default();
        Upload {
            body: (!body.is_end_stream()).then(|| Box::pin(body)),
            announced: text(http::header::CONTENT_LENGTH).and_then(|length| length.parse().ok()),
            waits: expected.eq_ignore_ascii_case("100-continue"),
        }
    }

    /// Reads everything.
    ///
    /// # Errors
    /// 413 beyond [`MAX_BODY`], 400 if the connection fails.
    pub async fn read(&mut self) -> Result<Bytes> {
        if self.announced.is_some_and(|length| length > MAX_BODY) {
            return Err(too_large());
        }
        let Some(body) = &mut self.body else {
            return Ok(Bytes::new());
        };
        self.waits = false;
        let mut whole: Vec<u8> = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| ApiError::bad_request(error.to_string()))?;
            if let Ok(mut data) = frame.into_data() {
                if whole.len() + data.remaining() > MAX_BODY {
                    return Err(too_large());
                }
                whole.extend_from_slice(&data.copy_to_bytes(data.remaining()));
            }
        }
        self.body = None;
        Ok(whole.into())
    }

    /// Reads a bounded amount of an unused body while the answer is sent. A connection that is closed while its client
    /// still sends is reset, and the client never sees the answer. `at_once` limits how many bodies are read
    /// concurrently.
    pub fn discard(self, at_once: &Arc<Semaphore>) {
        let Some(mut body) = self
            .body
            .filter(|body| !self.waits && !body.is_end_stream())
        else {
            return;
        };
        let Ok(turn) = at_once.clone().try_acquire_owned() else {
            return;
        };
        tokio::spawn(async move {
            let read = async {
                let mut left = DISCARD_BYTES;
                while let Some(Ok(frame)) = body.frame().await {
                    let size = frame.data_ref().map_or(0, Buf::remaining);
                    match left.checked_sub(size) {
                        Some(rest) => left = rest,
                        None => break,
                    }
                }
            };
            let _ = tokio::time::timeout(DISCARD_TIME, read).await;
            drop(turn);
        });
    }
}

fn too_large() -> ApiError {
    Status::request_entity_too_large(&format!("limit is {MAX_BODY}")).into()
}
