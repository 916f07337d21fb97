//! The kubelet's HTTPS API, through which the API server reaches containers: logs, exec, attach, port-forward.
//!
//! Clients authenticate by a certificate of the configured CA or by a token, and the API server authorizes their
//! requests ([`access`]). Connections without an authorized request are limited in number and time ([`connections`]).

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use allot_certificates::Presented;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt::set_socket_keepalive;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::error::Error;
use crate::pods::Node;

mod access;
mod attach;
mod connections;
mod exec;
mod logs;
mod portforward;
mod query;
mod spdy;
mod streams;
#[cfg(test)]
mod tests;
mod tls;
mod usage;
mod websocket;

pub(crate) use websocket::fuzz as fuzz_websocket;

use access::{Access, User};
use connections::{Connection, HEAD};
use query::Query;
use tls::Clients;

type Body = BoxBody<Bytes, std::io::Error>;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How long a request may wait for an agent that has just started to receive its pods.
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

/// Listens, so that the port is known before the Node is registered, and serves; returns the port. `nodes` are the names of
/// nodes that are served as well as the configured one.
pub(crate) async fn start(
    node: &Arc<Node>,
    nodes: HashSet<String>,
    tasks: &mut tokio::task::JoinSet<()>,
) -> Result<Option<u16>, Error> {
    let Some(address) = node.config.listen else {
        return Ok(None);
    };
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| Error::Serve(format!("cannot listen on {address}: {error}")))?;
    let port = listener.local_addr().ok().map(|address| address.port());
    let acceptor = tls::acceptor(&node.config, nodes)?;
    let clients = Clients::of(&node.config)?;
    tasks.spawn(serve(Arc::clone(node), listener, acceptor, clients));
    Ok(port)
}

/// Serves until dropped. Without a configured client CA it uses that of the cluster as soon as it can be read.
async fn serve(node: Arc<Node>, listener: TcpListener, acceptor: TlsAcceptor, clients: Clients) {
    let (client, name) = (node.client.clone(), node.config.node_name.clone());
    let api = Arc::new(Api {
        access: Access::new(client.clone(), name),
        clients,
        node,
    });
    tokio::join!(accept(&api, listener, acceptor), api.clients.follow(client));
}

async fn accept(api: &Arc<Api>, listener: TcpListener, acceptor: TlsAcceptor) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // A stream without data would not end when the machine of its client disappears.
                if let Err(error) = set_socket_keepalive(&stream, true) {
                    tracing::debug!(%error, "kubelet API");
                }
                tokio::spawn(connection(Arc::clone(api), stream, acceptor.clone()));
            }
            Err(error) => {
                // Out of descriptors, most likely: others may close some.
                tracing::warn!(%error, "kubelet API");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// What answers requests.
struct Api {
    node: Arc<Node>,
    access: Access,
    clients: Clients,
}

async fn connection(api: Arc<Api>, stream: TcpStream, acceptor: TlsAcceptor) {
    let state = Connection::open();
    let served = async {
        let stream = match tokio::time::timeout(HEAD, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                return tracing::debug!(%error, "TLS handshake with the kubelet API");
            }
            Err(_) => return tracing::debug!("TLS handshake with the kubelet API took too long"),
        };
        let chain = stream.get_ref().1.peer_certificates();
        let presented = chain.map(Presented::new);
        let service = hyper::service::service_fn(|request| {
            let user = presented.as_ref().and_then(|it| api.clients.user(it));
            let (api, state) = (Arc::clone(&api), Arc::clone(&state));
            async move {
                let busy = state.begin();
                let response = answer(api, request, user, &state).await;
                Ok::<_, Infallible>(response.map(|body| {
                    // A stream is a request that is under way.
                    body.map_frame(move |frame| {
                        let _ = &busy;
                        frame
                    })
                    .boxed()
                }))
            }
        });
        let served = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades()
            .await;
        if let Err(error) = served {
            tracing::debug!(%error, "kubelet API connection");
        }
    };
    tokio::select! {
        () = served => {}
        () = state.ended() => tracing::debug!("kubelet API connection closed: nothing happened on it"),
    }
}

async fn answer(
    api: Arc<Api>,
    request: Request<Incoming>,
    certificate: Option<User>,
    connection: &Connection,
) -> Response<Body> {
    match admitted(&api, request, certificate, connection).await {
        Ok(response) => response,
        Err(Refusal(status, message)) => {
            let mut response = text(status, &message);
            if status == StatusCode::UNAUTHORIZED || status == StatusCode::SERVICE_UNAVAILABLE {
                let close = http::HeaderValue::from_static("close");
                response
                    .headers_mut()
                    .insert(http::header::CONNECTION, close);
            }
            response
        }
    }
}

/// The answer to a request whose client may have it.
async fn admitted(
    api: &Api,
    request: Request<Incoming>,
    certificate: Option<User>,
    connection: &Connection,
) -> Result<Response<Body>, Refusal> {
    let user = api.access.authenticate(certificate, &request).await?;
    // The decoded path is both authorized and routed.
    let path = percent_encoding::percent_decode_str(request.uri().path())
        .decode_utf8_lossy()
        .into_owned();
    api.access.authorize(&user, request.method(), &path).await?;
    if !connection.is_known() {
        let text = "too many connections".to_owned();
        return Err(Refusal(StatusCode::SERVICE_UNAVAILABLE, text));
    }
    route(Arc::clone(&api.node), request, &path).await
}

async fn route(
    node: Arc<Node>,
    request: Request<Incoming>,
    path: &str,
) -> Result<Response<Body>, Refusal> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let query = Query::parse(request.uri().query().unwrap_or_default());
    if let (&Method::GET, ["healthz"] | ["healthz", "ping"]) = (request.method(), &*parts) {
        return Ok(text(StatusCode::OK, "ok"));
    }
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
        (&Method::GET, ["metrics"]) => {
            let states = node.certificates.report();
            node.claims.measures().set_certificates(states);
            let body = node.claims.metrics();
            Ok(with_body(StatusCode::OK, OPEN_METRICS, body.into()))
        }
        (&Method::GET, ["pods"]) => Ok(json(pod_list(&node))),
        (&Method::GET, ["metrics", "resource"]) => {
            let body = usage::resources(&node).await;
            Ok(with_body(StatusCode::OK, PROMETHEUS, body.into()))
        }
        (&Method::GET, ["metrics", "cadvisor"]) => {
            let body = usage::cadvisor(&node).await;
            Ok(with_body(StatusCode::OK, PROMETHEUS, body.into()))
        }
        (&Method::GET, ["stats", "summary"]) => match usage::summary(&node).await {
            Ok(summary) => Ok(json(summary)),
            Err(error) => {
                let message = error.to_string();
                Err(Refusal(StatusCode::INTERNAL_SERVER_ERROR, message))
            }
        },
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
