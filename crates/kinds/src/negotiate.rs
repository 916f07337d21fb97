//! Content negotiation.

use allot_apimachinery::Status;
use http::HeaderMap;
use http::header::{ACCEPT, USER_AGENT};

use crate::error::Result;
use crate::request::Query;

#[cfg(test)]
mod tests;

/// The encodings of a response body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Compact JSON.
    Json,
    /// Indented JSON, for humans.
    PrettyJson,
    /// YAML.
    Yaml,
    /// Kubernetes protobuf.
    Protobuf,
}

/// The shape of the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    /// The object itself.
    Whole,
    /// `meta.k8s.io/v1` Table.
    Table,
    /// `meta.k8s.io/v1beta1` Table.
    TableV1beta1,
    /// `meta.k8s.io/v1` PartialObjectMetadata or its list.
    Metadata,
    /// `meta.k8s.io/v1beta1` PartialObjectMetadata or its list.
    MetadataV1beta1,
}

impl Shape {
    /// The shape contains only the metadata of an object.
    pub fn is_metadata(self) -> bool {
        matches!(self, Shape::Metadata | Shape::MetadataV1beta1)
    }
}

/// The representation of a response: encoding and shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MediaType {
    /// JSON, YAML or protobuf.
    pub encoding: Encoding,
    /// The whole object, its metadata only, or a table.
    pub shape: Shape,
}

/// What a resource request may be answered with.
pub const RESOURCE_TYPES: &str =
    "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// What a watch may be answered with.
const STREAM_TYPES: &str =
    "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

impl MediaType {
    /// Plain JSON.
    pub const JSON: MediaType = MediaType {
        encoding: Encoding::Json,
        shape: Shape::Whole,
    };

    /// Value of the `Content-Type` header of a watch.
    pub fn stream_type(self) -> &'static str {
        match self.encoding {
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
            _ => self.content_type(),
        }
    }

    /// Value of the `Content-Type` header.
    pub fn content_type(self) -> &'static str {
        match (self.encoding, self.shape) {
            (Encoding::Yaml, _) => "application/yaml",
            (Encoding::Protobuf, _) => "application/vnd.kubernetes.protobuf",
            (_, Shape::Whole) => "application/json",
            // Upstream answers transformed objects with the plain media type too.
            (_, _) => "application/json",
        }
    }
}

/// One item of an `Accept` header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// `application/json`, `*/*`, ….
    pub media_type: String,
    /// Parameters other than `q`.
    pub parameters: Vec<(String, String)>,
    quality: u32,
}

impl Accepted {
    /// A parameter by name.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// The item accepts this type.
    pub fn covers(&self, media_type: &str) -> bool {
        let Some((kind, _)) = media_type.split_once('/') else {
            return false;
        };
        self.media_type == media_type
            || self.media_type == "*/*"
            || self.media_type.strip_suffix("/*") == Some(kind)
    }
}

/// The items of all `Accept` headers, best first; `*/*` if there are none.
pub fn accepted(headers: &HeaderMap) -> Vec<Accepted> {
    let values = headers.get_all(ACCEPT).iter().map(crate::header::lossy);
    let all = values.collect::<Vec<_>>().join(",");
    let mut items: Vec<Accepted> = all
        .split(',')
        .filter_map(|item| {
            let mut parts = item.split(';').map(str::trim);
            let media_type = parts
                .next()
                .filter(|part| !part.is_empty())?
                .to_ascii_lowercase();
            let mut quality = 1000;
            let mut parameters = Vec::new();
            for (key, value) in parts.filter_map(|part| part.split_once('=')) {
                if key == "q" {
                    quality = value
                        .parse::<f32>()
                        .map_or(0, |q| (q.clamp(0.0, 1.0) * 1000.0) as u32);
                } else {
                    parameters.push((key.to_owned(), value.trim_matches('"').to_owned()));
                }
            }
            Some(Accepted {
                media_type,
                parameters,
                quality,
            })
        })
        .collect();
    // Objects are stored as JSON: a client that has no preference of its own says so by `native`.
    items.sort_by_key(|item| {
        (
            std::cmp::Reverse(item.quality),
            item.parameter("native").is_none(),
        )
    });
    // A header without any media type accepts nothing.
    if all.is_empty() {
        items.push(Accepted {
            media_type: "*/*".to_owned(),
            parameters: Vec::new(),
            quality: 1000,
        });
    }
    items
}

/// The available representations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// A document of discovery, in any encoding.
    Document,
    /// An error, in any encoding.
    Status,
    /// Objects of a built-in kind, in any encoding and shape.
    Builtin,
    /// Objects of a built-in kind where they cannot be the rows of a table.
    Rowless,
    /// Objects of a definition: in protobuf only their metadata.
    Custom,
}

/// Chooses the representation of an answer.
///
/// # Errors
/// 406 if no accepted type is available.
pub fn negotiate(headers: &HeaderMap, query: &Query, offer: Offer) -> Result<MediaType> {
    let tables = matches!(offer, Offer::Builtin | Offer::Custom);
    let shapes = tables || offer == Offer::Rowless;
    for item in accepted(headers) {
        let shape = match (
            item.parameter("as"),
            item.parameter("g"),
            item.parameter("v"),
        ) {
            (None, None, None) => Shape::Whole,
            (Some("Table"), Some("meta.k8s.io"), Some("v1")) if tables => Shape::Table,
            (Some("Table"), Some("meta.k8s.io"), Some("v1beta1")) if tables => Shape::TableV1beta1,
            (
                Some("PartialObjectMetadata" | "PartialObjectMetadataList"),
                Some("meta.k8s.io"),
                Some("v1"),
            ) if shapes => Shape::Metadata,
            (
                Some("PartialObjectMetadata" | "PartialObjectMetadataList"),
                Some("meta.k8s.io"),
                Some("v1beta1"),
            ) if shapes => Shape::MetadataV1beta1,
            _ => continue,
        };
        if item
            .parameter("stream")
            .is_some_and(|stream| stream != "watch")
        {
            continue;
        }
        if item.covers("application/json") {
            let encoding = if pretty(headers, query) {
                Encoding::PrettyJson
            } else {
                Encoding::Json
            };
            return Ok(MediaType { encoding, shape });
        }
        // Watches have no form in YAML.
        if item.covers("application/yaml") && item.parameter("stream").is_none() {
            return Ok(MediaType {
                encoding: Encoding::Yaml,
                shape,
            });
        }
        let binary = match (offer, shape) {
            (_, Shape::Table | Shape::TableV1beta1) => false,
            (Offer::Custom, shape) => shape.is_metadata(),
            _ => true,
        };
        if binary && item.covers("application/vnd.kubernetes.protobuf") {
            let encoding = Encoding::Protobuf;
            return Ok(MediaType { encoding, shape });
        }
    }
    Err(not_acceptable())
}

/// The requirement of upstream's router on built-in paths before any handler runs: the plain media type of the answer,
/// or `*/*`.
///
/// # Errors
/// 406 with the router's words; `streams` for paths that can be watched.
pub fn acceptable(headers: &HeaderMap, streams: bool) -> Result<()> {
    if streams {
        one_of(headers, &format!("{RESOURCE_TYPES}, {STREAM_TYPES}"))
    } else {
        one_of(headers, RESOURCE_TYPES)
    }
}

/// As [`acceptable`] for the logs of a pod, which are text.
///
/// # Errors
/// 406 with the router's words.
pub fn acceptable_log(headers: &HeaderMap) -> Result<()> {
    one_of(headers, &format!("text/plain, {RESOURCE_TYPES}"))
}

/// As [`acceptable`] for paths that answer in JSON alone, such as `/version`.
///
/// # Errors
/// 406 with the router's words.
pub fn only_json(headers: &HeaderMap) -> Result<()> {
    one_of(headers, "application/json")
}

/// As [`acceptable`] for the public keys of the tokens of service accounts.
///
/// # Errors
/// 406 with the router's words.
pub fn only_keys(headers: &HeaderMap) -> Result<()> {
    one_of(headers, KEY_SET)
}

/// The media type of public keys.
pub const KEY_SET: &str = "application/jwk-set+json";

fn one_of(headers: &HeaderMap, types: &str) -> Result<()> {
    let known = |item: &Accepted| {
        item.media_type == "*/*" || types.split(", ").any(|it| it == item.media_type)
    };
    if accepted(headers).iter().any(known) {
        return Ok(());
    }
    let message = format!("406: Not Acceptable\n\nAvailable representations: {types}");
    let mut status = Status::failure(406, "NotAcceptable", message);
    status.details = Some(Box::default());
    Err(status.into())
}

/// 406 for a watch in an encoding that has no frames.
pub fn no_stream() -> crate::error::ApiError {
    let message = format!("only the following media types are accepted: {STREAM_TYPES}");
    Status::failure(406, "NotAcceptable", message).into()
}

/// 406 as upstream words it.
pub fn not_acceptable() -> crate::error::ApiError {
    let message = format!("only the following media types are accepted: {RESOURCE_TYPES}");
    Status::failure(406, "NotAcceptable", message).into()
}

/// Indented output is requested: by parameter, or because the client is a browser or curl.
fn pretty(headers: &HeaderMap, query: &Query) -> bool {
    match query.get("pretty") {
        Some(value) => !matches!(value, "" | "0" | "false"),
        None => headers
            .get(USER_AGENT)
            .map(crate::header::lossy)
            .is_some_and(|agent| {
                ["curl/", "Wget/", "Mozilla/"]
                    .iter()
                    .any(|known| agent.starts_with(known))
            }),
    }
}
