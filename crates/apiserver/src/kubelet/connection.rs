//! Connections to kubelets.

use std::sync::Arc;

use allot_apimachinery::Status;
use allot_certificates::roots::Roots;
use allot_certificates::{AnyServer, Trust};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::Builder;
use rustls::client::danger::ServerCertVerifier;
use rustls::server::ParsedCertificate;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{copy_headers, internal};
use crate::auth::certificate;
use crate::body::Body;
use crate::config::KubeletClient;
use crate::context::Call;
use crate::dial::head::{self, Sender};
use crate::dial::{self, Reach};
use crate::error::{ApiError, Result};
use crate::identity::NODE_PREFIX;
use crate::state::ServerState;
use crate::{remote, services};

/// How long a kubelet may take to accept a connection.
const CONNECT: std::time::Duration = std::time::Duration::from_secs(10);

/// How much of the text of a kubelet's error is returned to the client, in bytes, as upstream.
const REFUSAL: usize = 50_000;

/// The address of a kubelet, as its Node says: the node itself has written it.
pub(super) struct Endpoint {
    pub(super) node: String,
    pub(super) host: String,
    pub(super) port: u16,
}

impl Endpoint {
    /// Host and port as a URL has them: in brackets if the host is an IPv6 address.
    fn authority(&self) -> String {
        match self.host.parse::<std::net::Ipv6Addr>() {
            Ok(ip) => format!("[{ip}]:{}", self.port),
            Err(_) => format!("{}:{}", self.host, self.port),
        }
    }
}

/// What a kubelet refused, as a Status.
pub(super) async fn upstream_error(response: Response<hyper::body::Incoming>) -> ApiError {
    let code = response.status().as_u16();
    let text = refusal_of(response.into_body()).await;
    let reason = match code {
        400 => "BadRequest",
        404 => "NotFound",
        403 => "Forbidden",
        _ => "InternalError",
    };
    Status::failure(code, reason, text).into()
}

/// The beginning of the text of a kubelet's error, read in a bounded time: the node controls its length and its pace.
async fn refusal_of(mut body: hyper::body::Incoming) -> String {
    let mut text = Vec::new();
    let read = async {
        while let Some(Ok(frame)) = body.frame().await {
            if let Ok(data) = frame.into_data() {
                text.extend_from_slice(&data[..data.len().min(REFUSAL - text.len())]);
            }
            if text.len() == REFUSAL {
                break;
            }
        }
    };
    let _late = tokio::time::timeout(CONNECT, read).await;
    String::from_utf8_lossy(&text).trim().to_owned()
}

/// Opens a connection to a kubelet.
async fn connect<B>(core: &ServerState, endpoint: &Endpoint) -> Result<Sender<B>>
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let address = endpoint.authority();
    let dial = |error: &dyn std::fmt::Display| {
        let message = format!("Get \"https://{address}\": dial tcp {address}: {error}");
        ApiError::from(Status::internal(&message))
    };
    let open = async {
        let stream = dial::connect(&endpoint.host, endpoint.port, Reach::Host).await?;
        let ip = stream.peer_addr()?.ip().to_canonical();
        let client = core.config.kubelet_client.as_ref();
        let is_host = services::is_host(core, ip).await;
        // On the server's own host one kubelet can serve many nodes, and has a certificate for each.
        let by_node = is_host && client.is_none_or(|client| client.ca.is_none());
        let node = ServerName::try_from(endpoint.node.clone()).ok();
        let name = match node.filter(|_| by_node) {
            Some(node) => node,
            None => ServerName::try_from(endpoint.host.clone()).map_err(std::io::Error::other)?,
        };
        let stream = TlsConnector::from(client_tls(client)?)
            .connect(name, stream)
            .await?;
        if !names_node(&stream, &endpoint.node) && is_host {
            return Err(dial::refused());
        }
        Ok(stream)
    };
    let stream = tokio::time::timeout(CONNECT, open)
        .await
        .map_err(|_| dial(&"i/o timeout"))?
        .map_err(|error| match dial::is_refused(&error) {
            true => ApiError::bad_request(dial::REFUSED),
            false => dial(&error),
        })?;
    let (sender, connection) = head::handshake(&Builder::new(), stream)
        .await
        .map_err(|error| dial(&error))?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "connection to a kubelet ended");
        }
    });
    Ok(sender)
}

/// The certificate of the peer names the node.
///
/// On the server's own host, a Node could send the server to any port: to the server itself, where it has the rights of
/// its kubelet client, or to the kubelet of another node. The address of a service may lead there as well. Nothing but the
/// node's own kubelet names the node.
fn names_node(stream: &TlsStream<TcpStream>, node: &str) -> bool {
    let chain = stream.get_ref().1.peer_certificates();
    let Some(certificate) = chain.and_then(<[_]>::first) else {
        return false;
    };
    // Of a certificate that the cluster has signed, the user is the node.
    let user = certificate::user(certificate).ok().flatten();
    if user.is_some_and(|user| user.name == format!("{NODE_PREFIX}{node}")) {
        return true;
    }
    let Ok(certificate) = ParsedCertificate::try_from(certificate) else {
        return false;
    };
    let names = |name: &str| {
        ServerName::try_from(name)
            .is_ok_and(|name| rustls::client::verify_server_name(&certificate, &name).is_ok())
    };
    // Every kubelet has the former name, and every API server the latter: a node that has one of them proves nothing.
    node != "localhost" && !names("kubernetes.default.svc") && names(node)
}

/// Whether the client requests an upgrade.
pub(super) fn wants_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(http::header::UPGRADE)
}

/// Sends a request on a separate connection.
pub(super) async fn send(
    core: &ServerState,
    endpoint: &Endpoint,
    mut request: Request<Full<Bytes>>,
) -> Result<Response<hyper::body::Incoming>> {
    let host = endpoint.authority();
    request.headers_mut().insert(
        http::header::HOST,
        HeaderValue::from_str(&host).map_err(internal)?,
    );
    let mut sender = connect(core, endpoint).await?;
    sender.send_request(request).await.map_err(internal)
}

/// Sends the client's upgrade request to the kubelet and joins the two connections.
pub(super) async fn tunnel(
    call: &Call<'_>,
    endpoint: &Endpoint,
    path: &str,
) -> Result<Response<Body>> {
    let incoming = call.request;
    if !wants_upgrade(&incoming.headers) {
        return Err(ApiError::bad_request("Upgrade request required"));
    }
    let share = call.core.streams.of(incoming)?;
    let Some(client) = incoming.upgrade.lock().take() else {
        return Err(ApiError::bad_request("this connection can not be upgraded"));
    };
    let mut request = Request::new(Full::new(Bytes::new()));
    // SPDY clients post, WebSocket clients get.
    *request.method_mut() = if incoming.method == Method::GET {
        Method::GET
    } else {
        Method::POST
    };
    *request.uri_mut() = path.parse::<Uri>().map_err(internal)?;
    copy_headers(&incoming.headers, request.headers_mut());
    request.headers_mut().insert(
        http::header::CONNECTION,
        HeaderValue::from_static("Upgrade"),
    );
    let response = send(call.core, endpoint, request).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(upstream_error(response).await);
    }
    let shutdown = call.core.shutdown.clone();
    Ok(remote::switch(response, client, share, shutdown))
}

/// TLS towards kubelets: our client certificate; theirs is checked if there is a CA to check it against.
fn client_tls(client: Option<&KubeletClient>) -> std::io::Result<Arc<rustls::ClientConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match client.and_then(|it| it.ca.as_deref()) {
        Some(ca) => {
            let roots = Roots::read(ca.as_bytes()).map_err(std::io::Error::other)?;
            Arc::new(Trust::new(roots, provider.clone()))
        }
        None => Arc::new(AnyServer::new(provider.clone())),
    };
    let own = client.map(|it| (it.certificate.as_str(), it.key.as_str()));
    remote::client(provider, verifier, own).map_err(std::io::Error::other)
}
