//! Health and metrics of a component over TLS, as kube-scheduler and kube-controller-manager serve them.
//!
//! Health paths need no authentication. Any other path needs a bearer token: the API server reviews the token
//! (TokenReview) and the access to the path (SubjectAccessReview), so that RBAC applies to readers of metrics.

mod auth;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use allot_apimachinery::exposition::CONTENT_TYPE;
use allot_driver::webhook::Certificate;
use anyhow::Context as _;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls_pki_types::PrivateKeyDer;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use auth::{Denied, Reviews};

/// Paths that need no token, as `--authorization-always-allow-paths` of upstream's components has them.
const HEALTH: [&str; 3] = ["/healthz", "/livez", "/readyz"];
/// Limit of open connections; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 128;
/// How long a client may take for the TLS handshake, and for the head of a request.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a connection may live. Scrapers connect again.
const MAX_AGE: Duration = Duration::from_secs(600);

/// Flags for the port that serves health and metrics over TLS; the names are those of upstream's components.
#[derive(Debug, Clone, clap::Args)]
pub struct SecureServing {
    /// Port for /livez, /readyz and /metrics over TLS; 0 disables it. Readers of /metrics need a token with permission
    /// to `get` that path
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    secure_port: u16,
    /// Address to listen on for --secure-port
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    bind_address: IpAddr,
    /// Certificate for --secure-port, PEM; default: a self-signed one, generated at each start
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// Private key of --tls-cert-file, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,
}

impl SecureServing {
    /// Starts to serve in the background if a port is set. `metrics` returns a page in OpenMetrics 1.0.
    ///
    /// # Errors
    /// The certificate cannot be read or the address cannot be listened on.
    pub async fn start(
        &self,
        client: &kube::Client,
        component: &str,
        metrics: impl Fn() -> String + Send + Sync + 'static,
    ) -> anyhow::Result<()> {
        if self.secure_port == 0 {
            return Ok(());
        }
        let certificate = self.certificate(component)?;
        let address = SocketAddr::new(self.bind_address, self.secure_port);
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("--secure-port: cannot listen on {address}"))?;
        let pages = Pages {
            metrics: Box::new(metrics),
            reviews: Reviews::new(client.clone()),
        };
        tokio::spawn(serve(listener, Arc::new(certificate), Arc::new(pages)));
        Ok(())
    }

    fn certificate(&self, component: &str) -> anyhow::Result<Certificate> {
        if let (Some(chain), Some(key)) = (&self.tls_cert_file, &self.tls_private_key_file) {
            return Certificate::load(chain, key)
                .context("--tls-cert-file and --tls-private-key-file");
        }
        let names = [component.to_owned(), "localhost".to_owned()];
        let made = rcgen::generate_simple_self_signed(names)?;
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())
            .map_err(anyhow::Error::msg)?;
        Ok(Certificate::fixed(vec![made.cert.der().clone()], key)?)
    }
}

/// The endpoints of the port.
struct Pages {
    metrics: Box<dyn Fn() -> String + Send + Sync>,
    reviews: Reviews,
}

impl Pages {
    async fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        if HEALTH.contains(&path) {
            return page(StatusCode::OK, "text/plain; charset=utf-8", "ok".to_owned());
        }
        let verb = request.method().as_str().to_ascii_lowercase();
        if let Err(denied) = self.authorize(request.headers(), &verb, path).await {
            return refusal(&denied);
        }
        match (request.method(), path) {
            (&Method::GET, "/metrics") => {
                let text = super::metrics_page(&(self.metrics)());
                page(StatusCode::OK, CONTENT_TYPE, text)
            }
            (_, "/metrics") => page(
                StatusCode::METHOD_NOT_ALLOWED,
                "text/plain; charset=utf-8",
                "Method Not Allowed\n".to_owned(),
            ),
            _ => page(
                StatusCode::NOT_FOUND,
                "text/plain; charset=utf-8",
                "404 page not found\n".to_owned(),
            ),
        }
    }

    async fn authorize(&self, headers: &HeaderMap, verb: &str, path: &str) -> Result<(), Denied> {
        let token = auth::bearer(headers)?;
        self.reviews.authorize(token, verb, path).await
    }
}

fn page(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static(kind),
    );
    response
}

/// A refusal as a Status object, as upstream's components answer.
fn refusal(denied: &Denied) -> Response<Full<Bytes>> {
    let (code, reason) = match denied {
        Denied::Unauthorized => (StatusCode::UNAUTHORIZED, "Unauthorized"),
        Denied::Forbidden(_) => (StatusCode::FORBIDDEN, "Forbidden"),
        Denied::Unavailable(_) => (StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": denied.to_string(), "reason": reason, "code": code.as_u16(),
    });
    page(code, "application/json", status.to_string())
}

async fn serve(listener: TcpListener, certificate: Arc<Certificate>, pages: Arc<Pages>) {
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else {
            return;
        };
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "accept failed");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (certificate, pages) = (Arc::clone(&certificate), Arc::clone(&pages));
        tokio::spawn(async move {
            let _permit = permit;
            let handshake = tokio::time::timeout(HANDSHAKE, certificate.accept(stream));
            let Ok(Some(stream)) = handshake.await else {
                return tracing::debug!(%peer, "no TLS handshake");
            };
            let service = service_fn(move |request: Request<Incoming>| {
                let pages = Arc::clone(&pages);
                async move { Ok::<_, std::convert::Infallible>(pages.answer(&request).await) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HANDSHAKE)
                .serve_connection(TokioIo::new(stream), service);
            // A scraper that hangs up, or never does, costs one connection for a bounded time.
            let _ended = tokio::time::timeout(MAX_AGE, connection).await;
        });
    }
}

#[cfg(test)]
mod tests;
