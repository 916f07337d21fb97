//! `pods/proxy` and `services/proxy`: requests passed on to what runs in the cluster, over plain HTTP.

use std::net::IpAddr;

use allot_apimachinery::Status;
use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::body::Body;
use crate::context::Call;
use crate::dial::{self, Reach};
use crate::endpoints;
use crate::error::{ApiError, Result};
use crate::kubelet::{copy_headers, internal, stream_body, target};
use crate::object::text;

/// How long a workload may take to accept a connection.
const CONNECT: std::time::Duration = std::time::Duration::from_secs(10);

/// Passes a request on to a pod.
pub async fn pod(call: &Call<'_>, body: Bytes) -> Result<Response<Body>> {
    let wrong = || ApiError::bad_request(format!("invalid pod request {:?}", call.name()));
    let (name, port) = split(call.name()).ok_or_else(wrong)?;
    let pod = stored(call, "pods", name).await?;
    let container = |pod: &Value| {
        let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
        let mut ports = containers.filter_map(|it| it["ports"][0]["containerPort"].as_u64());
        ports.next()
    };
    let port = match port {
        "" => container(&pod).unwrap_or(80).to_string(),
        named => named.to_owned(),
    };
    let address = text(&pod, &["status", "podIP"]);
    let reach = match declares(&pod, &port) {
        true => Reach::Host,
        false => Reach::Network,
    };
    pass(call, address, &port, reach, body).await
}

/// Whether a container of the pod declares the port.
///
/// Pods of `allot up` may share the host's loopback interface. A process that listens on an undeclared port there
/// belongs to the host, and the permission to proxy to a pod must not reach it.
fn declares(pod: &Value, port: &str) -> bool {
    ["initContainers", "containers"]
        .iter()
        .flat_map(|list| pod["spec"][list].as_array().into_iter().flatten())
        .flat_map(|container| container["ports"].as_array().into_iter().flatten())
        .any(|declared| {
            declared["containerPort"].as_u64().map(|it| it.to_string()) == Some(port.to_owned())
        })
}

/// Passes a request on to one of the endpoints of a service.
pub async fn service(call: &Call<'_>, body: Bytes) -> Result<Response<Body>> {
    let wrong = || ApiError::bad_request(format!("invalid service request {:?}", call.name()));
    let (name, asked) = split(call.name()).ok_or_else(wrong)?;
    let service = stored(call, "services", name).await?;
    let ports = service["spec"]["ports"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    // A port may be given by number, and needs no name if it is the only one.
    let numbered = |port: &&Value| port["port"].as_u64().map(|number| number.to_string());
    let by_number = ports
        .iter()
        .find(|port| numbered(port).as_deref() == Some(asked));
    let wanted = match by_number {
        Some(port) => text(port, &["name"]),
        None if asked.is_empty() && ports.len() == 1 => text(&ports[0], &["name"]),
        None => asked,
    };
    let unavailable = |why: String| ApiError::from(Status::failure(503, "ServiceUnavailable", why));
    if !ports.iter().any(|port| text(port, &["name"]) == wanted) {
        let why = format!("no service port {asked:?} found for service {name:?}");
        return Err(unavailable(why));
    }
    let found = endpoints::ready(&*call.core.backend, call.namespace(), name, wanted).await?;
    let Some((address, port)) = found.first() else {
        let why = format!("no endpoints available for service {name:?}");
        return Err(unavailable(why));
    };
    // Validation keeps the loopback interface out of EndpointSlices; only the server's own service has it.
    let reach = match (call.namespace(), name) {
        ("default", "kubernetes") => Reach::Host,
        _ => Reach::Network,
    };
    pass(call, address, &port.to_string(), reach, body).await
}

/// Name and port of `[http:]name[:port]`.
fn split(id: &str) -> Option<(&str, &str)> {
    let parts: Vec<&str> = id.split(':').collect();
    match parts.as_slice() {
        [name] | ["http" | "", name, ""] => Some((name, "")),
        [name, port] | ["http" | "", name, port] => Some((name, port)),
        _ => None,
    }
}

async fn stored(call: &Call<'_>, collection: &str, name: &str) -> Result<Value> {
    let key = format!("{}/{name}", call.namespace());
    let entry = call.core.backend.get(collection, &key).await?;
    let missing = || ApiError::from(Status::not_found(&call.resource.group_resource(), name));
    let entry = entry.ok_or_else(missing)?;
    // What the store holds was written by this server as JSON.
    Ok(serde_json::from_slice(&entry.value).unwrap_or_default())
}

/// Passes a request on to an address, which is an IP address: upstream proxies to nothing else.
async fn pass(
    call: &Call<'_>,
    address: &str,
    port: &str,
    reach: Reach,
    body: Bytes,
) -> Result<Response<Body>> {
    let ip: Option<IpAddr> = address.parse().ok();
    let Some(ip) = ip.filter(|ip| reach.allows(*ip)) else {
        return Err(ApiError::bad_request(dial::REFUSED));
    };
    let host = match ip {
        IpAddr::V6(_) => format!("[{address}]:{port}"),
        IpAddr::V4(_) => format!("{address}:{port}"),
    };
    let unreachable = |error: &dyn std::fmt::Display| {
        let why = format!("error trying to reach service: dial tcp {host}: {error}");
        ApiError::from(Status::failure(503, "ServiceUnavailable", why))
    };
    let path = format!("/{}", call.request.info.rest.join("/"));
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = call.request.method.clone();
    let uri = target(&path, call.request.query.pairs());
    *request.uri_mut() = uri.parse().map_err(internal)?;
    copy_headers(&call.request.headers, request.headers_mut());
    let named = HeaderValue::from_str(&host).map_err(internal)?;
    request.headers_mut().insert(http::header::HOST, named);
    let stream = tokio::time::timeout(CONNECT, TcpStream::connect(host.as_str()))
        .await
        .map_err(|_| unreachable(&"i/o timeout"))?
        .map_err(|error| unreachable(&error))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| unreachable(&error))?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection to a workload ended");
        }
    });
    let response = sender.send_request(request).await;
    Ok(response
        .map_err(|error| unreachable(&error))?
        .map(stream_body))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::declares;

    #[test]
    fn a_pod_on_the_hosts_loopback_interface_has_the_ports_that_it_declares() {
        let pod = json!({"spec": {
            "initContainers": [{"name": "sidecar", "ports": [{"containerPort": 9000}]}],
            "containers": [{"name": "a"}, {"name": "b", "ports": [{"containerPort": 80}, {"containerPort": 8080}]}]}});
        for port in ["80", "8080", "9000"] {
            assert!(declares(&pod, port), "{port}");
        }
        for port in ["6443", "8", "080", "", "http"] {
            assert!(!declares(&pod, port), "{port}");
        }
        assert!(!declares(&json!({}), "80"));
    }
}
