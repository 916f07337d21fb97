//! Answers, all with headers that restrict what a browser may do with them.

use std::convert::Infallible;

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use serde_json::{Value, json};

/// The body of an answer: complete, or streamed.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The response to a request of the page.
pub type Answer = Response<Body>;

/// Marks an answer that only readers get: the connection is not a stranger's.
#[derive(Debug, Clone, Copy)]
pub struct ForReader;

/// Only this server's own files, nothing inline, nothing embedded, and no strings interpreted as
/// markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// Sent with everything.
fn headers() -> [(HeaderName, &'static str); 8] {
    let named = HeaderName::from_static;
    [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        // The link has a token in it.
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
        (named("cross-origin-opener-policy"), "same-origin"),
        (named("cross-origin-resource-policy"), "same-origin"),
        (
            named("permissions-policy"),
            "camera=(), microphone=(), geolocation=(), usb=(), serial=()",
        ),
    ]
}

/// An answer of this type with a body.
pub fn with_body(status: StatusCode, kind: &'static str, body: Body) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let fields = answer.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    for (name, value) in headers() {
        fields.insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// An answer in one piece.
pub fn whole(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    with_body(status, kind, Full::new(body.into()).boxed_unsync())
}

/// A JSON object.
pub fn json(value: &Value) -> Answer {
    whole(StatusCode::OK, "application/json", value.to_string())
}

/// An error, as JSON.
pub fn error(status: StatusCode, message: &str) -> Answer {
    let value = json!({"error": message, "code": status.as_u16()});
    whole(status, "application/json", value.to_string())
}
