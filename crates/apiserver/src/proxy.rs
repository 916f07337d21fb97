//! `pods/proxy` and `services/proxy`: requests passed on to what runs in the cluster, over plain HTTP.

use std::net::{IpAddr, SocketAddr};

use allot_apimachinery::Status;
use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use hyper::client::conn::http1::Builder;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::body::Body;
use crate::context::Call;
use crate::dial::{self, Reach, head};
use crate::endpoints;
use crate::error::{ApiError, Result};
use crate::kubelet::{copy_headers, internal, stream_body, target};
use crate::object::text;
use crate::services;

/// How long a workload may take to accept a connection.
const CONNECT: std::time::Duration = std::time::Duration::from_secs(10);

/// How many endpoints of a service are tried. The author of a slice determines how many there are, and the pods of those on
/// the server's host are read.
const MOST_ENDPOINTS: usize = 8;

/// Passes a request on to a pod.
pub async fn pod(call: &Call<'_>, body: Bytes) -> Result<Response<Body>> {
    let wrong = || ApiError::bad_request(format!("invalid pod request {:?}", call.name()));
    let (name, port) = split(call.name()).ok_or_else(wrong)?;
    let pod = stored(call, name).await?;
    let container = |pod: &Value| {
        let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
        let mut ports = containers.filter_map(|it| it["ports"][0]["containerPort"].as_u64());
        ports.next()
    };
    let port = match port {
        "" => container(&pod).unwrap_or(80).to_string(),
        named => named.to_owned(),
    };
    // Upstream proxies to IP addresses only.
    let ip: Option<IpAddr> = text(&pod, &["status", "podIP"]).parse().ok();
    let refused = || ApiError::bad_request(dial::REFUSED);
    let ip = ip.ok_or_else(refused)?;
    let number = port.parse().map_err(|error| {
        let host = format!("{}:{port}", shown(ip));
        unreachable(&host, &error)
    })?;
    let address = SocketAddr::new(ip, number);
    match declares(&pod, number) {
        true => pass(call, address, Reach::Host, body).await,
        // Also on its other addresses what listens may be a process of the host.
        false if services::is_host(call.core, ip).await => Err(refused()),
        false => pass(call, address, Reach::Network, body).await,
    }
}

/// Whether a container of the pod declares the port.
///
/// Pods of `allot up` may share the host's interfaces. A process that listens on an undeclared port there
/// belongs to the host, and the permission to proxy to a pod must not reach it.
fn declares(pod: &Value, port: u16) -> bool {
    ["initContainers", "containers"]
        .iter()
        .flat_map(|list| pod["spec"][list].as_array().into_iter().flatten())
        .flat_map(|container| container["ports"].as_array().into_iter().flatten())
        .any(|declared| declared["containerPort"].as_u64() == Some(port.into()))
}

/// Passes a request on to one of the endpoints of a service.
pub async fn service(call: &Call<'_>, body: Bytes) -> Result<Response<Body>> {
    let wrong = || ApiError::bad_request(format!("invalid service request {:?}", call.name()));
    let (name, asked) = split(call.name()).ok_or_else(wrong)?;
    let service = stored(call, name).await?;
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
    if found.is_empty() {
        let why = format!("no endpoints available for service {name:?}");
        return Err(unavailable(why));
    }
    let found = endpoints::preferred(&service, found);
    let own = (call.namespace(), name) == ("default", "kubernetes");
    for (address, pod) in found.into_iter().take(MOST_ENDPOINTS) {
        // Validation keeps the loopback interface out of EndpointSlices; only the server's own service has it.
        if own && Some(address) == call.core.config.advertise {
            return pass(call, address, Reach::Host, body).await;
        }
        if Reach::Network.allows(address.ip()) && may_be_asked(call, address, pod).await? {
            return pass(call, address, Reach::Network, body).await;
        }
    }
    Err(ApiError::bad_request(dial::REFUSED))
}

/// Whether an endpoint is something else than a process of the server's host. There it must be a pod which has this
/// address and declares the port, as for a request to the pod itself: the author of a slice must reach no more.
async fn may_be_asked(call: &Call<'_>, address: SocketAddr, pod: Option<String>) -> Result<bool> {
    if !services::is_host(call.core, address.ip()).await {
        return Ok(true);
    }
    let Some(name) = pod else { return Ok(false) };
    let key = format!("{}/{name}", call.namespace());
    let parts = [
        "status.podIP",
        "status.podIPs",
        "spec.containers",
        "spec.initContainers",
    ];
    let pod = call.core.stored_parts("pods", &key, &parts).await?;
    Ok(pod.is_some_and(|pod| {
        let all = pod["status"]["podIPs"].as_array().into_iter().flatten();
        let mut all = all.map(|it| text(it, &["ip"]));
        let has = |it: &str| it.parse() == Ok(address.ip());
        let own = has(text(&pod, &["status", "podIP"])) || all.any(has);
        own && declares(&pod, address.port())
    }))
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

async fn stored(call: &Call<'_>, name: &str) -> Result<Value> {
    let key = format!("{}/{name}", call.namespace());
    let missing = || ApiError::from(Status::not_found(&call.resource.group_resource(), name));
    call.core
        .stored(&call.resource.collection, &key)
        .await?
        .ok_or_else(missing)
}

/// An address in front of a port.
fn shown(ip: IpAddr) -> String {
    match ip {
        IpAddr::V6(ip) => format!("[{ip}]"),
        IpAddr::V4(ip) => ip.to_string(),
    }
}

fn unreachable(host: &str, error: &dyn std::fmt::Display) -> ApiError {
    let why = format!("error trying to reach service: dial tcp {host}: {error}");
    Status::failure(503, "ServiceUnavailable", why).into()
}

/// Passes a request on to an address.
async fn pass(
    call: &Call<'_>,
    address: SocketAddr,
    reach: Reach,
    body: Bytes,
) -> Result<Response<Body>> {
    if !reach.allows(address.ip()) {
        return Err(ApiError::bad_request(dial::REFUSED));
    }
    let host = address.to_string();
    let unreachable = |error: &dyn std::fmt::Display| unreachable(&host, error);
    let path = format!("/{}", call.request.info.rest.join("/"));
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = call.request.method.clone();
    let uri = target(&path, call.request.query.pairs());
    *request.uri_mut() = uri.parse().map_err(internal)?;
    copy_headers(&call.request.headers, request.headers_mut());
    let named = HeaderValue::from_str(&host).map_err(internal)?;
    request.headers_mut().insert(http::header::HOST, named);
    let stream = tokio::time::timeout(CONNECT, TcpStream::connect(address))
        .await
        .map_err(|_| unreachable(&"i/o timeout"))?
        .map_err(|error| unreachable(&error))?;
    let (mut sender, connection) = head::handshake(&Builder::new(), stream)
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
        for port in [80, 8080, 9000] {
            assert!(declares(&pod, port), "{port}");
        }
        for port in [6443, 8, 0] {
            assert!(!declares(&pod, port), "{port}");
        }
        assert!(!declares(&json!({}), 80));
    }
}
