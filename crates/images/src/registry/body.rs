//! Bodies of answers: in pieces, each with a deadline.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::Deserialize;

use crate::{Error, Result, Timeouts};

/// Longest body of an error that is read.
const MAX_ERROR: u64 = 16 << 10;
/// Codes of errors that are repeated in a message.
const MAX_CODES: usize = 4;

/// A body that is being received.
pub struct Body {
    inner: Incoming,
    authority: String,
    stall: Duration,
}

#[derive(Deserialize)]
struct Errors {
    #[serde(default)]
    errors: Vec<Coded>,
}

#[derive(Deserialize)]
struct Coded {
    #[serde(default)]
    code: String,
}

impl Body {
    pub(super) fn new(inner: Incoming, authority: &str, timeouts: &Timeouts) -> Self {
        Self {
            inner,
            authority: authority.to_owned(),
            stall: timeouts.stall,
        }
    }

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] if no data arrives, [`Error::Unreachable`] if the connection breaks.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            let frame = tokio::time::timeout(self.stall, self.inner.frame()).await;
            let frame = frame.map_err(|_| {
                Error::Timeout(
                    format!("registry {} sends nothing", self.authority),
                    self.stall,
                )
            })?;
            match frame {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Some(Err(error)) => {
                    let reason = super::innermost(&error);
                    return Err(Error::Unreachable(self.authority.clone(), reason));
                }
            }
        }
    }

    /// The whole body, if it is not longer than permitted.
    pub(super) async fn collect(&mut self, max: u64) -> Result<Bytes> {
        let mut content = BytesMut::new();
        while let Some(piece) = self.next().await? {
            if (content.len() + piece.len()) as u64 > max {
                return Err(Error::TooLarge(format!(
                    "registry {} sends more than {max} bytes",
                    self.authority
                )));
            }
            content.extend_from_slice(&piece);
        }
        Ok(content.freeze())
    }

    /// The codes in the body of an error. They are upper case words; anything else is left out.
    pub(super) async fn error_codes(&mut self) -> Vec<String> {
        let Ok(content) = self.collect(MAX_ERROR).await else {
            return Vec::new();
        };
        let errors: Option<Errors> = serde_json::from_slice(&content).ok();
        let is_word = |code: &str| {
            let valid = |byte: u8| byte.is_ascii_uppercase() || byte == b'_';
            !code.is_empty() && code.len() <= 40 && code.bytes().all(valid)
        };
        let codes = errors.into_iter().flat_map(|errors| errors.errors);
        let codes = codes.map(|error| error.code).filter(|code| is_word(code));
        codes.take(MAX_CODES).collect()
    }
}
