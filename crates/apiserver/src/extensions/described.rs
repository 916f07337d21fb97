//! The OpenAPI documents of an extension API server.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;

/// The documents of one group version, as the service had them last.
#[derive(Debug, Clone, Default)]
pub(crate) struct Described {
    /// The names of its documents in the newer format (`apis/GROUP/VERSION`, `apis/GROUP`) with the hashes that the service
    /// gives them. Requests for them go to the service. `None` if it has no such documents: then its part of the older one is
    /// converted.
    pub newer: Option<BTreeMap<String, String>>,
    /// Its part of the document in the older format.
    pub older: Option<Arc<Document>>,
    /// The tag that the service gave its document in the older format.
    pub tag: Option<HeaderValue>,
    /// The digest of that document as it was sent.
    pub sent: String,
}

/// A document as JSON.
#[derive(Debug)]
pub(crate) struct Document {
    pub text: Bytes,
    /// Changes when the text does.
    pub hash: String,
}
