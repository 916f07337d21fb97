//! Checks of the request head that determine how the rest is read.

use std::time::Duration;

use http::{HeaderMap, Method, Request};

use crate::config::{Config, Unusable};
use crate::error::{ApiError, Result};
use crate::identity::User;
use crate::request::{Incoming, RequestInfo, is_long_running, parse_duration};

/// Why the host of an HTTP/1.1 request is ambiguous, in Go's words. This server has one name for all, but a proxy
/// before it may use either of two.
pub(super) fn ambiguous<B>(request: &Request<B>) -> Option<&'static str> {
    let strict = request.version() == http::Version::HTTP_11 && request.method() != Method::CONNECT;
    let hosts = request.headers().get_all(http::header::HOST);
    match hosts.iter().count() {
        _ if !strict => None,
        0 => Some("missing required Host header"),
        1 => None,
        _ => Some("too many Host headers"),
    }
}

/// The user that the headers of a front proxy name, if the common name of the certificate is that of an allowed one. From
/// all other clients such headers mean nothing.
///
/// # Errors
/// [`Unusable`] if the headers of a proxy are garbled.
pub(super) fn fronted(
    config: &Config,
    proxy: Option<&str>,
    headers: &HeaderMap,
) -> Result<Option<User>, Unusable> {
    match (&config.front_proxy.headers, proxy) {
        (Some(known), Some(name)) if known.allows(name) => known.user(headers),
        _ => Ok(None),
    }
}

/// The handler reads the request body. Long-running requests have no other time limit than the one for their body.
pub(super) fn reads_body(info: &RequestInfo) -> bool {
    info.subresource == "proxy" || !matches!(info.verb.as_str(), "get" | "list" | "watch")
}

/// The time limit of a request: `?timeout=`, at most the server's maximum. Long-running ones have no limit.
///
/// # Errors
/// 400 for a `?timeout=` that is no length of time.
pub(super) fn time_limit(request: &Incoming, most: Duration) -> Result<Option<Duration>> {
    if is_long_running(&request.info) {
        return Ok(None);
    }
    let Some(text) = request.query.text("timeout") else {
        return Ok(Some(most));
    };
    let wanted = parse_duration(text).map_err(|error| {
        ApiError::bad_request(format!(
            "invalid timeout specified in the request URL - {error}"
        ))
    })?;
    // Zero and negative values mean the default.
    let wanted = u64::try_from(wanted).ok().filter(|wanted| *wanted > 0);
    Ok(Some(match wanted {
        Some(wanted) => most.min(Duration::from_nanos(wanted)),
        None => most,
    }))
}
