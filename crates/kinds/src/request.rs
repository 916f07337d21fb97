//! Request attributes derived from the method and path.
//!
//! The path grammar is Kubernetes': `/api/{version}` or `/apis/{group}/{version}`, then optionally
//! `namespaces/{namespace}`, then `{resource}[/{name}[/{subresource}[/…]]]`; a leading `watch` is the deprecated form
//! of `?watch=1`. Authorization and audit use the result.

use http::Method;
use percent_encoding::percent_decode_str;

mod options;
mod part;
#[cfg(test)]
mod tests;
mod warnings;

pub use options::{DeleteOptions, Preconditions, Propagation};
pub use part::Part;
pub use warnings::Warnings;

/// A request taken apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// The path, decoded: what rules about paths are compared with.
    pub path: String,
    /// Whether this is a resource request, as opposed to discovery, health checks and similar.
    pub is_resource: bool,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; for other paths the
    /// method in lower case.
    pub verb: String,
    /// API group, empty for the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Namespace, empty for none.
    pub namespace: String,
    /// Plural resource name.
    pub resource: String,
    /// Name of one object, or empty.
    pub name: String,
    /// `status`, `log`, …, or empty.
    pub subresource: String,
    /// What follows the subresource (proxy paths).
    pub rest: Vec<String>,
    /// A deprecated path that ends before its resource: `/api/v1/watch`.
    pub is_cut: bool,
}

/// Subresources of namespaces, which would otherwise be parsed as resources in a namespace.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

impl RequestInfo {
    /// Reads method, path and query.
    pub fn parse(method: &Method, path: &str, query: &Query) -> Self {
        // Split after decoding, as Go does: an escaped slash is a slash. Empty parts count.
        let decoded = percent_decode_str(path).decode_utf8_lossy();
        let mut info = RequestInfo {
            path: decoded.clone().into_owned(),
            verb: method.as_str().to_ascii_lowercase(),
            ..Self::default()
        };
        let parts: Vec<String> = decoded
            .trim_matches('/')
            .split('/')
            .map(str::to_owned)
            .collect();
        let mut rest = parts.as_slice();
        match rest {
            [prefix, version, tail @ ..] if prefix == "api" && !tail.is_empty() => {
                info.version = version.clone();
                rest = tail;
            }
            [prefix, group, version, tail @ ..] if prefix == "apis" && !tail.is_empty() => {
                info.group = group.clone();
                info.version = version.clone();
                rest = tail;
            }
            _ => return info,
        }
        info.is_resource = true;
        info.verb = match *method {
            Method::POST => "create",
            Method::GET | Method::HEAD => "get",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "",
        }
        .to_owned();
        // The verb that a deprecated path begins with.
        let mut old_verb = None;
        if let [first, tail @ ..] = rest
            && matches!(first.as_str(), "watch" | "proxy")
        {
            if tail.is_empty() {
                info.is_cut = true;
                return info;
            }
            old_verb = Some(first.clone());
            rest = tail;
        }
        if let [first, namespace, tail @ ..] = rest
            && first == "namespaces"
        {
            info.namespace = namespace.clone();
            // `namespaces/x` and `namespaces/x/status` are about the namespace itself, whatever follows.
            let about_namespace = match tail {
                [] => true,
                [one, ..] => NAMESPACE_SUBRESOURCES.contains(&one.as_str()),
            };
            if !about_namespace {
                rest = tail;
            }
        }
        let mut parts = rest.iter().cloned();
        info.resource = parts.next().unwrap_or_default();
        info.name = parts.next().unwrap_or_default();
        if old_verb.as_deref() != Some("proxy") {
            info.subresource = parts.next().unwrap_or_default();
        }
        info.rest = parts.collect();
        if let Some(verb) = old_verb {
            info.verb = verb;
            return info;
        }
        if info.name.is_empty() && info.verb == "get" {
            info.verb = if query.flag("watch") { "watch" } else { "list" }.to_owned();
        }
        if info.name.is_empty() && info.verb == "delete" {
            info.verb = "deletecollection".to_owned();
        }
        info
    }
}

/// Decoded query parameters in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Decodes `a=b&c=d`; `+` is a space.
    pub fn parse(text: Option<&str>) -> Self {
        let decode = |part: &str| {
            let spaced = part.replace('+', " ");
            percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
        };
        let pairs = text
            .unwrap_or_default()
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                (decode(key), decode(value))
            })
            .collect();
        Query(pairs)
    }

    /// The first value of a parameter.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, _)| known == key)
            .map(|(_, value)| value.as_str())
    }

    /// The first value of a parameter unless it is empty.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.get(key).filter(|value| !value.is_empty())
    }

    /// All values of a parameter.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(known, _)| known == key)
            .map(|(_, value)| value.as_str())
    }

    /// A switch as Kubernetes reads it: present and not `false` or `0`.
    pub fn flag(&self, key: &str) -> bool {
        self.get(key)
            .is_some_and(|value| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    /// The parameters in the order of the query string, decoded; a key can occur several times.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.0
    }
}

/// Why a text is not a duration; the texts are those of Go's `time.ParseDuration`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// A number is missing or malformed, or the duration has more nanoseconds than 64 bits.
    #[error("time: invalid duration {0:?}")]
    Invalid(String),
    /// A number has no unit.
    #[error("time: missing unit in duration {0:?}")]
    MissingUnit(String),
    /// A unit does not exist.
    #[error("time: unknown unit {unit:?} in duration {text:?}")]
    UnknownUnit {
        /// The unit.
        unit: String,
        /// The whole text.
        text: String,
    },
}

/// Reads a duration as Go's `time.ParseDuration`, such as `1m30s`, in nanoseconds.
///
/// # Errors
/// The text is not a duration.
pub fn parse_duration(text: &str) -> Result<i64, DurationError> {
    const UNITS: [(&str, f64); 8] = [
        ("ns", 1.0),
        ("us", 1e3),
        ("µs", 1e3),
        ("μs", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
        ("m", 60e9),
        ("h", 3600e9),
    ];
    let mut total = 0.0;
    let invalid = || DurationError::Invalid(text.to_owned());
    let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    while !rest.is_empty() {
        let end = rest.find(|c| !is_number(c)).unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        if !number.contains(|c: char| c.is_ascii_digit()) || number.matches('.').count() > 1 {
            return Err(invalid());
        }
        let end = after.find(is_number).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        if unit.is_empty() {
            return Err(DurationError::MissingUnit(text.to_owned()));
        }
        let Some((_, nanoseconds)) = UNITS.iter().find(|(known, _)| *known == unit) else {
            return Err(DurationError::UnknownUnit {
                unit: unit.to_owned(),
                text: text.to_owned(),
            });
        };
        total += number.parse::<f64>().map_err(|_| invalid())? * nanoseconds;
        rest = after;
    }
    // Go's durations are 64 bits of nanoseconds.
    if total > i64::MAX as f64 {
        return Err(invalid());
    }
    let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
    Ok((total * sign) as i64)
}
