//! The kubelet's HTTPS API, through which the API server reaches containers: logs, exec, attach, port-forward.
//!
//! Only clients with a certificate of the configured authority are served; `/healthz` is for everybody.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use kube::ResourceExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::error::Error;
use crate::pods::Node;

mod attach;
mod exec;
mod logs;
mod portforward;
mod query;
mod spdy;
mod streams;
#[cfg(test)]
mod tests;
mod tls;
mod websocket;

use query::Query;

type Body = BoxBody<Bytes, std::io::Error>;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How long a request may wait for an agent that has just started to learn of its pods.
const FIRST_PODS: Duration = Duration::from_secs(10);

/// An answer that is not a success.
#[derive(Debug)]
struct Refusal(StatusCode, String);

impl Refusal {
    fn bad_request(text: impl Into<String>) -> Self {
        Self(StatusCode::BAD_REQUEST, text.into())
    }

    fn not_found(text: impl Into<String>) -> Self {
        Self(StatusCode::NOT_FOUND, text.into())
    }
}

/// Listens, so that the port is known before the Node is registered.
pub(crate) async fn bind(address: SocketAddr) -> Result<TcpListener, Error> {
    TcpListener::bind(address)
        .await
        .map_err(|error| Error::Serve(format!("cannot listen on {address}: {error}")))
}

/// Serves until dropped.
pub(crate) async fn serve(node: Arc<Node>, listener: TcpListener, acceptor: TlsAcceptor) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(connection(Arc::clone(&node), stream, acceptor.clone()));
            }
            Err(error) => {
                // Out of descriptors, most likely: others may give some back.
                tracing::warn!(%error, "kubelet API");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

pub(crate) use tls::acceptor;

async fn connection(node: Arc<Node>, stream: TcpStream, acceptor: TlsAcceptor) {
    let stream = match acceptor.accept(stream).await {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(%error, "TLS handshake with the kubelet API");
            return;
        }
    };
    // The verifier checked it; who has a certificate of this authority is the API server or an administrator.
    let known = stream.get_ref().1.peer_certificates().is_some();
    let service = hyper::service::service_fn(move |request| {
        let node = Arc::clone(&node);
        async move { Ok::<_, Infallible>(answer(node, request, known).await) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "kubelet API connection");
    }
}

async fn answer(node: Arc<Node>, request: Request<Incoming>, known: bool) -> Response<Body> {
    if request.uri().path() == "/healthz" {
        return text(StatusCode::OK, "ok");
    }
    if !known {
        return text(StatusCode::UNAUTHORIZED, "Unauthorized");
    }
    match route(node, request).await {
        Ok(response) => response,
        Err(Refusal(status, message)) => text(status, &message),
    }
}

async fn route(node: Arc<Node>, request: Request<Incoming>) -> Result<Response<Body>, Refusal> {
    let path = request.uri().path().to_owned();
    let decoded = percent_encoding::percent_decode_str(&path)
        .decode_utf8_lossy()
        .into_owned();
    let parts: Vec<&str> = decoded.trim_matches('/').split('/').collect();
    let query = Query::parse(request.uri().query().unwrap_or_default());
    // An agent that has just started would deny pods that run.
    let _ = tokio::time::timeout(FIRST_PODS, node.synced.wait()).await;
    match (request.method(), parts.as_slice()) {
        (&Method::GET, ["containerLogs", namespace, pod, container]) => {
            logs::serve(&node, namespace, pod, container, &query).await
        }
        (&Method::GET | &Method::POST, ["exec", namespace, pod, container])
        | (&Method::GET | &Method::POST, ["exec", namespace, pod, _, container]) => {
            exec::exec(&node, namespace, pod, container, &query, request)
        }
        (&Method::GET | &Method::POST, ["attach", namespace, pod, container])
        | (&Method::GET | &Method::POST, ["attach", namespace, pod, _, container]) => {
            attach::serve(&node, namespace, pod, container, &query, request)
        }
        (&Method::GET | &Method::POST, ["portForward", namespace, pod])
        | (&Method::GET | &Method::POST, ["portForward", namespace, pod, _]) => {
            portforward::serve(&node, namespace, pod, &query, request)
        }
        (&Method::GET, ["metrics"]) => Ok(with_body(
            StatusCode::OK,
            OPEN_METRICS,
            node.claims.metrics().into(),
        )),
        (&Method::GET, ["pods"]) => Ok(json(pod_list(&node))),
        (&Method::GET, ["stats", "summary"]) => Ok(json(summary(&node))),
        _ => Err(Refusal::not_found("404 page not found")),
    }
}

fn pod_list(node: &Node) -> serde_json::Value {
    let pods = node.pods.lock();
    let pods: Vec<_> = pods
        .values()
        .map(|entry| serde_json::json!(*entry.update.borrow().pod))
        .collect();
    serde_json::json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods})
}

/// What exists; nothing is measured.
fn summary(node: &Node) -> serde_json::Value {
    let pods = node.pods.lock();
    let references = pods.values().map(|entry| {
        let pod = Arc::clone(&entry.update.borrow().pod);
        let name = pod.name_any();
        serde_json::json!({"podRef": {"name": name, "namespace": pod.namespace(), "uid": pod.uid()}})
    });
    serde_json::json!({"node": {"nodeName": node.config.node_name}, "pods": references.collect::<Vec<_>>()})
}

fn text(status: StatusCode, message: &str) -> Response<Body> {
    with_body(
        status,
        "text/plain; charset=utf-8",
        message.to_owned().into(),
    )
}

fn json(value: serde_json::Value) -> Response<Body> {
    with_body(StatusCode::OK, "application/json", value.to_string().into())
}

fn with_body(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Body> {
    let mut response = Response::new(Full::new(body).map_err(|never| match never {}).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static(kind),
    );
    response
}
