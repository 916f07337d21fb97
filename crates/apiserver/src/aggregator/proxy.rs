//! Requests that an extension API server answers. They have passed authentication, flow control and authorization as all
//! others; the service is told in headers which user they are from.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::LOCATION;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;

use super::head;
use crate::body::{Body, text_response};
use crate::context::Core;
use crate::error::{ApiError, Result};
use crate::extensions::{Extension, Failure};
use crate::kubelet::target;
use crate::remote;
use crate::request::Incoming;

/// The time for a discovery document, as upstream: clients read those of all groups.
const DISCOVERY: Duration = Duration::from_secs(5);
const UNAVAILABLE: &str = "service unavailable\n";
const REDIRECT: &str = "the backend attempted to redirect this request, which is not permitted";

/// Passes a request on to an extension.
///
/// # Errors
/// 400 for a path that is not plain, 429 if the user has too many watches or streams.
pub(crate) async fn answer(
    core: &Arc<Core>,
    request: &Incoming,
    extension: &Extension,
    body: Bytes,
    audit_id: Option<&str>,
) -> Result<Response<Body>> {
    let own = &core.extensions.own_name;
    if head::has_passed(&request.headers, own) {
        let why = "the service of the APIService leads to this server\n";
        return Ok(text_response(StatusCode::LOOP_DETECTED.as_u16(), why));
    }
    if !extension.is_available() {
        return Ok(text_response(503, UNAVAILABLE));
    }
    check_path(&request.info.path)?;
    let upgrade = head::wants_upgrade(&request.headers);
    let share = match request.info.verb.as_str() {
        "watch" => core.watches.of(request)?,
        _ => None,
    };
    let stream = match upgrade {
        true => core.streams.of(request)?,
        false => None,
    };
    let outgoing = match outgoing(core, request, body, audit_id, upgrade) {
        Ok(outgoing) => outgoing,
        Err(why) => return Ok(text_response(500, format!("{why}\n"))),
    };
    let sent = extension.client.send(&*core.backend, outgoing);
    let answered = match is_discovery(request) {
        true => tokio::time::timeout(DISCOVERY, sent).await,
        false => Ok(sent.await),
    };
    let (mut response, exchange) = match answered {
        Ok(Ok(answered)) => answered,
        Ok(Err(failure)) => return Ok(failed(extension, &failure)),
        Err(_) => return Ok(text_response(503, "context deadline exceeded\n")),
    };
    let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = head::to_client(response.headers(), switches);
    if switches {
        let client = request.upgrade.lock().take();
        let Some(client) = client.filter(|_| upgrade) else {
            return Ok(text_response(502, "the backend switched protocols\n"));
        };
        let shutdown = core.shutdown.clone();
        return Ok(remote::switch(response, client, (share, stream), shutdown));
    }
    if response.status().is_redirection() && response.headers().contains_key(LOCATION) {
        return Ok(text_response(502, REDIRECT));
    }
    let mut answer = response.map(|body| exchange.stream(body));
    answer.body_mut().hold(Box::new(share));
    Ok(answer)
}

/// The request that the service gets.
fn outgoing(
    core: &Core,
    request: &Incoming,
    body: Bytes,
    audit_id: Option<&str>,
    upgrade: bool,
) -> Result<Request<Full<Bytes>>, String> {
    let wrong = |error: &dyn std::fmt::Display| error.to_string();
    let mut outgoing = Request::new(Full::new(body));
    *outgoing.method_mut() = request.method.clone();
    // The hash in the address of an OpenAPI document is that of a moment ago: the service would send the client to another
    // address.
    let pairs = request.query.pairs();
    let pairs: Cow<'_, [_]> = match request.info.path.starts_with("/openapi/") {
        true => pairs
            .iter()
            .filter(|(key, _)| key != "hash")
            .cloned()
            .collect(),
        false => pairs.into(),
    };
    // Written again from what was authorized, so that it cannot be read as anything else.
    let uri = target(&request.info.path, &pairs);
    *outgoing.uri_mut() = uri.parse().map_err(|error| wrong(&error))?;
    let configured = core.config.front_proxy.headers.as_ref();
    let mut headers = head::to_service(&request.headers, configured, upgrade);
    if let Some(peer) = request.peer {
        head::forwarded_for(&mut headers, peer.ip());
    }
    head::pass(&mut headers, &core.extensions.own_name);
    if let Some(id) = audit_id.and_then(|id| HeaderValue::from_str(id).ok()) {
        headers.insert("audit-id", id);
    }
    head::name_user(&mut headers, &request.user)
        .map_err(|part| format!("the {part} of the user can not be passed on in a header"))?;
    *outgoing.headers_mut() = headers;
    Ok(outgoing)
}

/// The answer if there is none of the service.
fn failed(extension: &Extension, failure: &Failure) -> Response<Body> {
    let name = &extension.name;
    tracing::debug!(name, %failure, "an extension API server does not answer");
    match failure {
        Failure::Tls(why) => text_response(500, format!("{why}\n")),
        Failure::Unresolved(_) => text_response(503, UNAVAILABLE),
        Failure::Exchange(why) => text_response(503, format!("{why}\n")),
    }
}

/// Whether the path is that of a group version.
fn is_discovery(request: &Incoming) -> bool {
    let path = request.info.path.trim_matches('/');
    !request.info.is_resource && path.split('/').count() == 3
}

/// Refuses a path with parts that the service could resolve: it would be another one than was authorized.
fn check_path(path: &str) -> Result<()> {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let last = parts.len() - 1;
    let is_plain = |(index, part): (usize, &&str)| match *part {
        "." | ".." => false,
        "" => index == last,
        part => !part.contains(['\0', '\\']),
    };
    match parts.iter().enumerate().all(is_plain) {
        true => Ok(()),
        false => Err(ApiError::bad_request("the path must be plain")),
    }
}

#[cfg(test)]
mod tests {
    use super::check_path;

    #[test]
    fn only_plain_paths_are_passed_on() {
        for path in [
            "/apis/g/v1",
            "/apis/g/v1/",
            "/apis/g/v1/things/a..b",
            "/apis/g/v1/things/...",
        ] {
            assert!(check_path(path).is_ok(), "{path}");
        }
        for path in [
            "/apis/g/v1/namespaces/a/things/../../b/things",
            "/apis/g/v1/things/.",
            "/apis/g/v1/things/..",
            "/apis/g/v1//things",
            "/apis/g/v1/a\\..\\b",
            "/apis/g/v1/a\0",
        ] {
            assert!(check_path(path).is_err(), "{path}");
        }
    }
}
