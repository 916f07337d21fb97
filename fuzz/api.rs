//! The fuzz target `api`, also used by the hostile tests of the API server: one request to a server in memory. The
//! first line is `METHOD PATH [CONTENT-TYPE]`, the rest the body.

use allot_apiserver::Server;
use allot_apiserver::identity::User;
use bytes::Bytes;
use http_body::Body as _;
use http_body_util::{BodyExt, Full};

/// The request that some bytes describe; `None` if a client could not send it.
pub fn request(data: &[u8]) -> Option<http::Request<Full<Bytes>>> {
    let end = data.iter().position(|byte| *byte == b'\n')?;
    let line = String::from_utf8_lossy(&data[..end]);
    let mut words = line.split(' ');
    let (method, path) = (words.next()?, words.next()?);
    let mut request = http::Request::builder().method(method).uri(path);
    if !path.starts_with('/') {
        return None;
    }
    if let Some(kind) = words.next() {
        request = request.header(http::header::CONTENT_TYPE, kind);
    }
    let body = Full::new(Bytes::copy_from_slice(&data[end + 1..]));
    request.body(body).ok()
}

/// Sends the request; an error must be a Status with its code (some unknown paths answer in text).
pub async fn send(server: &Server, data: &[u8]) {
    let Some(request) = request(data) else { return };
    let response = server.handle(request, Some(User::admin())).await;
    let code = response.status().as_u16();
    let kind = response.headers().get(http::header::CONTENT_TYPE).cloned();
    let (shown, body) = (String::from_utf8_lossy(data), response.into_body());
    if body.size_hint().exact().is_none() {
        return; // A stream, abandoned.
    }
    // The parts of a body in memory are available without waiting and without errors.
    let Ok(body) = body.collect().await else {
        return;
    };
    if code >= 500 || (code >= 400 && kind.is_some_and(|kind| kind == "application/json")) {
        let status: serde_json::Value = serde_json::from_slice(&body.to_bytes())
            .unwrap_or_else(|error| panic!("{shown}: {code} without JSON: {error}"));
        assert_eq!(status["kind"], "Status", "{shown}: {status}");
        assert_eq!(status["code"], code, "{shown}: {status}");
    }
}
