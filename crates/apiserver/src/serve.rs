//! The server behind a socket: TLS, HTTP/1.1 and HTTP/2, client certificates, orderly end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::auth::certificate;
use crate::pki::Identity;
use crate::server::Server;

/// How long requests that are under way get when the server stops.
const DRAIN: Duration = Duration::from_secs(10);
/// How long a client may take for the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// A TLS configuration for a serving certificate; client certificates of `client_ca` prove identities.
///
/// # Errors
/// Malformed PEM.
pub fn tls(identity: &Identity, client_ca: Option<&str>) -> io::Result<Arc<rustls::ServerConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let bad = |error: &dyn std::fmt::Display| io::Error::other(error.to_string());
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(identity.certificate.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|error| bad(&error))?;
    let key =
        PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).map_err(|error| bad(&error))?;
    let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| bad(&error))?;
    let builder = match client_ca {
        Some(ca) => {
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()) {
                roots
                    .add(certificate.map_err(|error| bad(&error))?)
                    .map_err(|error| bad(&error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| bad(&error))?;
            builder.with_client_cert_verifier(verifier)
        }
        None => builder.with_no_client_auth(),
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| bad(&error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Accepts connections until `shutdown`, then drains.
///
/// # Errors
/// None: a failing connection is logged and ends alone.
pub async fn serve(
    server: Server,
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let acceptor = TlsAcceptor::from(tls);
    let graceful = GracefulShutdown::new();
    loop {
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "accept failed");
                    // Out of file descriptors, usually: let some connections end.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = shutdown.cancelled() => break,
        };
        let _ = stream.set_nodelay(true);
        let (server, acceptor) = (server.clone(), acceptor.clone());
        let watcher = graceful.watcher();
        tokio::spawn(async move {
            let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return tracing::debug!(%peer, %error, "TLS handshake failed"),
                Err(_) => return tracing::debug!(%peer, "TLS handshake took too long"),
            };
            let user = stream
                .get_ref()
                .1
                .peer_certificates()
                .and_then(|chain| chain.first())
                .map_or(Ok(None), |first| certificate::user(first));
            if let Err(error) = &user {
                tracing::debug!(%peer, %error, "client certificate is of no use");
            }
            let service = service_fn(move |request| {
                let (server, user) = (server.clone(), user.clone());
                async move {
                    Ok::<_, std::convert::Infallible>(server.handle_remote(request, user).await)
                }
            });
            let builder = {
                let mut builder = auto::Builder::new(TokioExecutor::new());
                builder.http2().max_concurrent_streams(1000);
                builder
            };
            let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
            if let Err(error) = watcher.watch(connection.into_owned()).await {
                tracing::debug!(%peer, %error, "connection ended");
            }
        });
    }
    server.shutdown();
    tokio::select! {
        () = graceful.shutdown() => {}
        () = tokio::time::sleep(DRAIN) => tracing::warn!("some requests did not end in time"),
    }
    Ok(())
}
