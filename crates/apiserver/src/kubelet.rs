//! Passing requests on to kubelets: logs, streams into containers, node proxy.

use allot_apimachinery::Status;
use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::gvk::GroupKind;
use allot_schema::decode::time_error;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::Full;
use serde_json::Value;

use crate::body::Body;
use crate::context::Call;
use crate::error::{ApiError, Result};
use crate::numbers::parse_int;
use crate::object::{meta, text};

mod connection;

use connection::{Endpoint, send, tunnel, upstream_error, wants_upgrade};

/// The collection of the nodes that pods name.
const NODES: &str = "nodes";

/// Headers that belong to one connection.
const HOP_BY_HOP: [&str; 7] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
];

/// `pods/log`.
pub async fn log(call: &Call<'_>) -> Result<Response<Body>> {
    check_log_options(call)?;
    let pod = pod(call).await?;
    let container = container(call, &pod)?;
    if text(&pod, &["spec", "nodeName"]).is_empty() {
        // Nothing has been logged yet.
        let nothing = Response::builder().status(http::StatusCode::NO_CONTENT);
        return nothing.body(Body::empty()).map_err(internal);
    }
    let endpoint = endpoint_of_pod(call, &pod).await?;
    let path = format!(
        "/containerLogs/{}/{}/{container}",
        call.namespace(),
        call.name()
    );
    let query: Vec<(String, String)> = call
        .request
        .query
        .pairs()
        .iter()
        .filter(|(key, _)| key != "container")
        .cloned()
        .collect();
    let uri = target(&path, &query);
    let request = Request::get(uri)
        .body(Full::new(Bytes::new()))
        .map_err(internal)?;
    let mut response = send(call.core, &endpoint, request).await?;
    let headers = response.headers_mut();
    headers.remove(http::header::CONTENT_TYPE);
    headers.insert(
        http::header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain"),
    );
    if !response.status().is_success() {
        return Err(upstream_error(response).await);
    }
    Ok(response.map(stream_body))
}

/// Validates the log options of a client.
fn check_log_options(call: &Call<'_>) -> Result<()> {
    let query = &call.request.query;
    let number = |key: &str| query.text(key).map(parse_int).transpose();
    let seconds = number("sinceSeconds")?;
    let time = query.text("sinceTime");
    if let Some(error) = time.filter(|it| *it != "null").and_then(time_error) {
        return Err(ApiError::bad_request(error));
    }
    let (tail, limit) = (number("tailLines")?, number("limitBytes")?);
    let mut errors = ErrorList::new();
    let mut at_least = |key: &str, found: Option<i64>, least: i64| {
        if let Some(found) = found.filter(|found| *found < least) {
            let text = match least {
                0 => "must be greater than or equal to 0",
                _ => "must be greater than 0",
            };
            errors.push(Error::invalid(&Path::new(key), found, text));
        }
    };
    at_least("tailLines", tail, 0);
    at_least("limitBytes", limit, 1);
    if seconds.is_some() && time.is_some() {
        let detail = "at most one of `sinceTime` or `sinceSeconds` may be specified";
        errors.push(Error::forbidden(&Path::new("[]"), detail));
    } else {
        at_least("sinceSeconds", seconds, 1);
    }
    // The feature PodLogsQuerySplitStreams is off by default.
    if query.text("stream").is_some() {
        let detail = "may not be specified";
        errors.push(Error::forbidden(&Path::new("stream"), detail));
    }
    if errors.is_empty() {
        return Ok(());
    }
    let kind = GroupKind::new("", "PodLogOptions");
    Err(Status::invalid(&kind, call.name(), &errors).into())
}

/// `pods/exec`, `pods/attach`, `pods/portforward`: the connection is handed over, byte for byte.
pub async fn stream(call: &Call<'_>, kind: &str) -> Result<Response<Body>> {
    let pod = pod(call).await?;
    let endpoint = endpoint_of_pod(call, &pod).await?;
    let (namespace, name) = (call.namespace(), call.name());
    let mut query = Vec::new();
    let path = match kind {
        "portforward" => {
            query.extend(
                call.request
                    .query
                    .pairs()
                    .iter()
                    .filter(|(key, _)| key == "ports")
                    .cloned(),
            );
            format!("/portForward/{namespace}/{name}")
        }
        kind => {
            let container = container(call, &pod)?;
            for (key, value) in call.request.query.pairs() {
                // The kubelet has its own names for the switches.
                let key = match key.as_str() {
                    "stdin" => "input",
                    "stdout" => "output",
                    "stderr" => "error",
                    "container" => continue,
                    other => other,
                };
                query.push((
                    key.to_owned(),
                    if value == "true" {
                        "1".to_owned()
                    } else {
                        value.clone()
                    },
                ));
            }
            format!("/{kind}/{namespace}/{name}/{container}")
        }
    };
    tunnel(call, &endpoint, &target(&path, &query)).await
}

/// `nodes/proxy`.
pub async fn proxy(call: &Call<'_>, body: Bytes) -> Result<Response<Body>> {
    let endpoint = endpoint_of_node(call, call.name()).await?;
    let path = format!("/{}", call.request.info.rest.join("/"));
    let uri = target(&path, call.request.query.pairs());
    if wants_upgrade(&call.request.headers) {
        return tunnel(call, &endpoint, &uri).await;
    }
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = call.request.method.clone();
    *request.uri_mut() = uri.parse().map_err(internal)?;
    copy_headers(&call.request.headers, request.headers_mut());
    Ok(send(call.core, &endpoint, request).await?.map(stream_body))
}

async fn pod(call: &Call<'_>) -> Result<Value> {
    let entry = call
        .core
        .backend
        .get(&call.resource.collection, &call.key()?)
        .await?
        .ok_or_else(|| call.not_found())?;
    Ok(serde_json::from_slice(&entry.value).unwrap_or(Value::Null))
}

/// The container that is meant: the one named, the default one, or the only one.
fn container(call: &Call<'_>, pod: &Value) -> Result<String> {
    let names = |key: &str| -> Vec<String> {
        let list = pod["spec"][key].as_array().into_iter().flatten();
        list.filter_map(|it| it["name"].as_str().map(str::to_owned))
            .collect()
    };
    let (main, init, ephemeral) = (
        names("containers"),
        names("initContainers"),
        names("ephemeralContainers"),
    );
    let name = call.name();
    if let Some(wanted) = call.request.query.text("container") {
        if main
            .iter()
            .chain(&init)
            .chain(&ephemeral)
            .any(|known| known == wanted)
        {
            return Ok(wanted.to_owned());
        }
        return Err(ApiError::bad_request(format!(
            "container {wanted} is not valid for pod {name}"
        )));
    }
    let default = text(
        pod,
        &[
            "metadata",
            "annotations",
            "kubectl.kubernetes.io/default-container",
        ],
    );
    if main.iter().any(|known| known == default) {
        return Ok(default.to_owned());
    }
    match main.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(ApiError::bad_request(format!(
            "a container name must be specified for pod {name}"
        ))),
        many => {
            let mut message = format!(
                "a container name must be specified for pod {name}, choose one of: [{}]",
                many.join(" ")
            );
            if !init.is_empty() {
                message.push_str(&format!(
                    " or one of the init containers: [{}]",
                    init.join(" ")
                ));
            }
            if !ephemeral.is_empty() {
                message.push_str(&format!(
                    " or one of the ephemeral containers: [{}]",
                    ephemeral.join(" ")
                ));
            }
            Err(ApiError::bad_request(message))
        }
    }
}

async fn endpoint_of_pod(call: &Call<'_>, pod: &Value) -> Result<Endpoint> {
    let node = text(pod, &["spec", "nodeName"]);
    if node.is_empty() {
        return Err(ApiError::bad_request(format!(
            "pod {} does not have a host assigned",
            meta(pod, "name")
        )));
    }
    endpoint_of_node(call, node).await
}

async fn endpoint_of_node(call: &Call<'_>, name: &str) -> Result<Endpoint> {
    // As upstream, the error about a missing node names the resource of the request.
    let resource = call.resource.group_resource();
    let paths = ["status.addresses", "status.daemonEndpoints"];
    let node = call.core.stored_parts(NODES, name, &paths).await?;
    let node = node.ok_or_else(|| ApiError::from(Status::not_found(&resource, name)))?;
    let addresses = node["status"]["addresses"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let host = [
        "Hostname",
        "InternalDNS",
        "InternalIP",
        "ExternalDNS",
        "ExternalIP",
    ]
    .iter()
    .rev()
    // An address always leads to the node; names need a resolver that has them.
    .find_map(|kind| {
        let address = addresses
            .iter()
            .find(|it| it["type"] == *kind && kind.ends_with("IP"))?;
        address["address"].as_str().map(str::to_owned)
    })
    .ok_or_else(|| {
        ApiError::from(Status::internal(&format!(
            "no preferred addresses found for node {name:?}"
        )))
    })?;
    let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        .as_u64()
        .filter(|port| *port != 0);
    let port = port
        .and_then(|port| u16::try_from(port).ok())
        .unwrap_or(10250);
    let node = name.to_owned();
    Ok(Endpoint { node, host, port })
}

/// A path, which is not encoded, with a query as the target of a request. What would end the path is part of it.
pub(crate) fn target(path: &str, query: &[(String, String)]) -> String {
    use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
    /// Go escapes all other characters in a path.
    const PATH: &AsciiSet = &NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'_')
        .remove(b'.')
        .remove(b'~')
        .remove(b'$')
        .remove(b'&')
        .remove(b'+')
        .remove(b',')
        .remove(b'/')
        .remove(b':')
        .remove(b';')
        .remove(b'=')
        .remove(b'@');
    let path = utf8_percent_encode(path, PATH).to_string();
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let pairs: Vec<String> = query
        .iter()
        .map(|(key, value)| format!("{}={}", encode(key), encode(value)))
        .collect();
    if pairs.is_empty() {
        path
    } else {
        format!("{path}?{}", pairs.join("&"))
    }
}

pub(crate) fn internal(error: impl std::fmt::Display) -> ApiError {
    Status::internal(&error.to_string()).into()
}

pub(crate) fn copy_headers(from: &HeaderMap, to: &mut HeaderMap) {
    for (name, value) in from {
        // The kubelet must not see the client's credentials.
        let private = name == http::header::AUTHORIZATION || name == http::header::HOST;
        if !private
            && !HOP_BY_HOP.contains(&name.as_str())
            && !name.as_str().starts_with("impersonate-")
            && !name.as_str().starts_with("x-remote-")
        {
            to.append(name, value.clone());
        }
    }
}

/// A streamed body from a kubelet or workload.
pub(crate) fn stream_body(body: hyper::body::Incoming) -> Body {
    use futures::StreamExt;
    let stream = http_body_util::BodyStream::new(body).filter_map(|frame| async move {
        match frame {
            Ok(frame) => frame.into_data().ok().map(Ok),
            Err(error) => Some(Err(std::io::Error::other(error))),
        }
    });
    Body::stream(stream)
}

#[cfg(test)]
mod tests {
    use super::target;

    #[test]
    fn a_path_stays_a_path() {
        let query = [("a b".to_owned(), "c&d".to_owned())];
        for (path, encoded) in [
            ("/x/y.html", "/x/y.html"),
            ("/a b", "/a%20b"),
            ("/a?command=sh", "/a%3Fcommand=sh"),
            ("/a#b", "/a%23b"),
            ("/100%", "/100%25"),
            ("/josé", "/jos%C3%A9"),
            ("/a\r\nHost: b", "/a%0D%0AHost:%20b"),
        ] {
            assert_eq!(target(path, &[]), encoded);
            assert_eq!(target(path, &query), format!("{encoded}?a%20b=c%26d"));
        }
    }
}
