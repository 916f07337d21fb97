//! Values of HTTP headers as text.
//!
//! `HeaderValue::to_str` accepts only visible ASCII. Go passes header bytes to its handlers as they are, and clients
//! such as kubectl send names in UTF-8. Headers that determine an identity must be read completely or rejected; for
//! others a replacement character is sufficient.

use std::borrow::Cow;

use allot_apimachinery::Status;
use allot_apimachinery::quote::quote;
use http::{HeaderName, HeaderValue};

use crate::error::Result;

/// The value, with replacement characters for invalid UTF-8: for headers that select the form of an answer.
pub fn lossy(value: &HeaderValue) -> Cow<'_, str> {
    String::from_utf8_lossy(value.as_bytes())
}

/// The value of a header that decides about identity.
///
/// # Errors
/// 400 if it is not UTF-8: identities are text here.
pub fn exact(name: &HeaderName, value: &HeaderValue) -> Result<String> {
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => {
            let name = quote(&canonical(name.as_str()));
            Err(
                Status::bad_request(format!("the value of header {name} is not valid UTF-8"))
                    .into(),
            )
        }
    }
}

/// A header name in Go's canonical form: the first letter of each word in upper case.
pub fn canonical(name: &str) -> String {
    let mut start = true;
    name.chars()
        .map(|c| {
            let c = if start {
                c.to_ascii_uppercase()
            } else {
                c.to_ascii_lowercase()
            };
            start = c == '-';
            c
        })
        .collect()
}
