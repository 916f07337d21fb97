//! Objects in Kubernetes' protobuf: the encoding that an API server of Kubernetes needs least time for.
//!
//! A body is `k8s\0` and an envelope with the kind and version of the object, and its message. The numbers of fields
//! are in the data of [`crate::types`]. Fields that are not there are left out when an object is read: a component that
//! writes whole objects reads them in JSON, or edits the bytes.
//!
//! ```
//! use allot_schema::protobuf;
//! use serde_json::json;
//!
//! let map = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"k": "v"}});
//! let body = protobuf::encode(&map, protobuf::compact).unwrap();
//! let text = protobuf::to_json(&body, |_, field| field != "data").unwrap().text;
//! assert_eq!(text, r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"}}"#);
//! ```

use std::borrow::Cow;

use serde_json::Value;

use crate::types::{self, Struct};

mod read;
#[cfg(test)]
mod tests;
mod whole;
mod write;

pub use read::{Json, event, to_json};
pub use whole::is_whole;
pub use write::{RawWriter, compact, encode, envelope, frame, message_of};

/// Every body starts with this.
pub const MAGIC: &[u8] = b"k8s\0";
/// Deepest nesting that is read.
const MAX_DEPTH: usize = 64;

/// Why a body cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is nothing to read.
    #[error("empty data")]
    Empty,
    /// It does not start with the marker.
    #[error(
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    )]
    Magic,
    /// The input is truncated or is no protobuf.
    #[error("proto: unexpected EOF")]
    Truncated,
    /// Its kind has no protobuf form.
    #[error("no kind {0:?} is registered for version {1:?}")]
    UnknownKind(String, String),
    /// It nests too deep.
    #[error("proto: message is nested too deep")]
    TooDeep,
    /// The value of a raw field cannot be read.
    #[error("proto: object cannot be read as JSON: {0}")]
    Json(String),
}

/// The body starts as protobuf bodies do.
pub fn is_protobuf(body: &[u8]) -> bool {
    body.starts_with(MAGIC)
}

/// What is around the message of an object.
struct Envelope<'a> {
    api_version: Cow<'a, str>,
    kind: Cow<'a, str>,
    message: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn read(body: &'a [u8]) -> Result<Self, Error> {
        if body.is_empty() {
            return Err(Error::Empty);
        }
        let mut rest = body.strip_prefix(MAGIC).ok_or(Error::Magic)?;
        let (mut api_version, mut kind, mut message) = (&b""[..], &b""[..], &b""[..]);
        while !rest.is_empty() {
            match next(&mut rest)? {
                (1, Wire::Bytes(mut meta)) => {
                    while !meta.is_empty() {
                        match next(&mut meta)? {
                            (1, Wire::Bytes(bytes)) => api_version = bytes,
                            (2, Wire::Bytes(bytes)) => kind = bytes,
                            _ => {}
                        }
                    }
                }
                (2, Wire::Bytes(bytes)) => message = bytes,
                _ => {}
            }
        }
        let api_version = String::from_utf8_lossy(api_version);
        let kind = String::from_utf8_lossy(kind);
        Ok(Self {
            api_version,
            kind,
            message,
        })
    }

    fn schema(&self) -> Result<&'static Struct, Error> {
        let unknown = || Error::UnknownKind(self.kind.to_string(), self.api_version.to_string());
        schema_of(&self.api_version, &self.kind).ok_or_else(unknown)
    }
}

/// The `apiVersion` and kind of an object.
fn head(object: &Value) -> (&str, &str) {
    let text = |key: &str| object[key].as_str().unwrap_or_default();
    (text("apiVersion"), text("kind"))
}

/// The type of a kind.
fn schema_of(api_version: &str, kind: &str) -> Option<&'static Struct> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    types::lookup(group, version, kind)
}

/// The value of a field.
#[derive(Clone, Copy)]
enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

/// The next field of a message, with its number.
fn next<'a>(rest: &mut &'a [u8]) -> Result<(u64, Wire<'a>), Error> {
    let tag = varint(rest)?;
    let value = match tag & 7 {
        0 => Wire::Varint(varint(rest)?),
        1 => Wire::Fixed64(u64::from_le_bytes(array(rest)?)),
        2 => {
            let length = usize::try_from(varint(rest)?).map_err(|_| Error::Truncated)?;
            let (value, after) = rest.split_at_checked(length).ok_or(Error::Truncated)?;
            *rest = after;
            Wire::Bytes(value)
        }
        5 => Wire::Fixed32(u32::from_le_bytes(array(rest)?)),
        _ => return Err(Error::Truncated),
    };
    Ok((tag >> 3, value))
}

fn array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Error> {
    let (head, after) = rest.split_first_chunk().ok_or(Error::Truncated)?;
    *rest = after;
    Ok(*head)
}

fn varint(rest: &mut &[u8]) -> Result<u64, Error> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first().ok_or(Error::Truncated)?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Error::Truncated)
}
