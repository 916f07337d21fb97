//! Reaching other servers over TLS, webhooks and extension API servers: the endpoint of a service, the certificates that are
//! trusted, and connections that are handed over byte for byte.

use std::io;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use allot_certificates::roots::Roots;
use allot_certificates::{AnyServer, Trust};
use allot_store::Backend;
use http::{HeaderValue, Response, StatusCode, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use crate::body::Body;
use crate::dial::Reach;
use crate::endpoints;
use crate::object::text;
use crate::pki::Identity;

/// Paths of the system's trusted certificates.
const TRUSTED: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// How long the ends of a stream may take to be told that it has ended.
const FAREWELL: Duration = Duration::from_secs(5);

/// An error of a connection in Go's wording.
pub(crate) fn in_go(error: &io::Error) -> String {
    use rustls::{CertificateError as Bad, Error as Tls};
    match error.kind() {
        io::ErrorKind::ConnectionRefused => return "connection refused".to_owned(),
        io::ErrorKind::UnexpectedEof => return "EOF".to_owned(),
        _ => {}
    }
    let Some(tls) = error.get_ref().and_then(|it| it.downcast_ref::<Tls>()) else {
        return error.to_string();
    };
    let why = match tls {
        // The latter if a CA has the name of the right one.
        Tls::InvalidCertificate(Bad::UnknownIssuer | Bad::BadSignature) => {
            "certificate signed by unknown authority"
        }
        Tls::InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. }) => {
            "certificate has expired or is not yet valid"
        }
        Tls::InvalidCertificate(Bad::NotValidForName | Bad::NotValidForNameContext { .. }) => {
            "certificate is not valid for any names, but wanted to match the webhook's"
        }
        other => return format!("tls: {other}"),
    };
    format!("tls: failed to verify certificate: x509: {why}")
}

/// A TLS client that trusts the given certificates, or those that the system trusts where none are given, and that presents a
/// certificate of its own if it has one.
///
/// # Errors
/// Go's text for certificates that cannot be read.
pub(crate) fn tls(bundle: &[u8], own: Option<&Identity>) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let trust = match bundle {
        [] => SYSTEM.clone(),
        bundle => Arc::new(trust(bundle, &provider).ok_or_else(|| {
            "unable to load root certificates: unable to parse bytes as PEM block".to_owned()
        })?),
    };
    client(provider, trust, own.map(pem))
}

/// The certificates that the system trusts. There are more than a hundred, and thousands of services may name none of their
/// own.
static SYSTEM: LazyLock<Arc<Trust>> = LazyLock::new(|| {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chosen = std::env::var("SSL_CERT_FILE").ok();
    let mut places = chosen.iter().map(String::as_str).chain(TRUSTED);
    let found = places.find_map(|place| std::fs::read(place).ok());
    let trusted = trust(&found.unwrap_or_default(), &provider);
    Arc::new(trusted.unwrap_or_else(|| Trust::new(Roots::default(), provider)))
});

/// The certificates in PEM; `None` if there are none.
fn trust(bundle: &[u8], provider: &Arc<CryptoProvider>) -> Option<Trust> {
    let certificates = CertificateDer::pem_slice_iter(bundle).filter_map(Result::ok);
    Trust::of(certificates, provider.clone())
}

/// A TLS client that takes any certificate.
///
/// # Errors
/// The text for a certificate of its own that cannot be used.
pub(crate) fn tls_unverified(own: Option<&Identity>) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let any = Arc::new(AnyServer::new(provider.clone()));
    client(provider, any, own.map(pem))
}

fn pem(identity: &Identity) -> (&str, &str) {
    (&identity.certificate, &identity.key)
}

/// A TLS client that presents the certificate with this key, both in PEM, if it has one.
///
/// # Errors
/// The text for a certificate or key that cannot be used.
pub(crate) fn client(
    provider: Arc<CryptoProvider>,
    verifier: Arc<dyn ServerCertVerifier>,
    own: Option<(&str, &str)>,
) -> Result<Arc<ClientConfig>, String> {
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let config = match own {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = CertificateDer::pem_slice_iter(certificate.as_bytes())
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| error.to_string())?;
            let key =
                PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| error.to_string())?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| error.to_string())?
        }
    };
    Ok(Arc::new(config))
}

/// A ready endpoint of a service: there may be no proxy that forwards traffic for the service's address.
pub(crate) async fn endpoint(
    backend: &dyn Backend,
    namespace: &str,
    name: &str,
    port: u16,
) -> Result<(String, u16, Reach), String> {
    let key = format!("{namespace}/{name}");
    let found = backend.get("services", &key).await;
    let Some(entry) = found.map_err(|error| error.to_string())? else {
        return Err(format!("service {name:?} not found"));
    };
    // What the store holds was written by this server as JSON.
    let service: Value = serde_json::from_slice(&entry.value).unwrap_or_default();
    if service["spec"]["type"] == "ExternalName" {
        // The owner of the service has written it, which need not be the user that has configured the
        // webhook or the API service.
        let name = text(&service, &["spec", "externalName"]).to_owned();
        return Ok((name, port, Reach::Network));
    }
    let mut ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let Some(wanted) = ports.find(|it| it["port"].as_u64() == Some(port.into())) else {
        return Err(format!("no service port {port} found for service {name:?}"));
    };
    let endpoints = endpoints::ready(backend, namespace, name, text(wanted, &["name"]))
        .await
        .map_err(|error| error.to_string())?;
    let endpoints = endpoints::preferred(&service, endpoints);
    let chosen = rand::random_range(0..endpoints.len().max(1));
    let address = endpoints.into_keys().nth(chosen);
    // Endpoints are addresses, and validation keeps the loopback interface out of EndpointSlices.
    let address = address.map(|it| (it.ip().to_string(), it.port(), Reach::Host));
    address.ok_or_else(|| format!("no endpoints available for service {name:?}"))
}

/// Joins the connection of a client and that of a server which has agreed to switch protocols. Returns the answer for the
/// client; `held` is kept until the stream ends.
pub(crate) fn switch(
    response: Response<hyper::body::Incoming>,
    client: OnUpgrade,
    held: impl Send + 'static,
    shutdown: CancellationToken,
) -> Response<Body> {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    for (name, value) in response.headers() {
        if name != header::CONTENT_LENGTH {
            answer.headers_mut().append(name, value.clone());
        }
    }
    let upgrade = HeaderValue::from_static("Upgrade");
    answer.headers_mut().insert(header::CONNECTION, upgrade);
    tokio::spawn(async move {
        let _held = held;
        let (client, server) = match tokio::try_join!(client, hyper::upgrade::on(response)) {
            Ok(both) => both,
            Err(error) => return tracing::debug!(%error, "upgrade failed"),
        };
        let (client, server) = (TokioIo::new(client), TokioIo::new(server));
        tokio::select! {
            () = join(client, server) => {}
            () = shutdown.cancelled() => {}
        }
    });
    answer
}

/// Passes bytes in both directions until one of them ends, as kube-apiserver does: a server that stays silent would not show
/// that its client has left, and would be kept with its place and its share as long as it is silent.
async fn join<A, B>(client: A, server: B)
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_server, mut to_server) = tokio::io::split(server);
    let copied = tokio::select! {
        copied = tokio::io::copy(&mut from_client, &mut to_server) => copied,
        copied = tokio::io::copy(&mut from_server, &mut to_client) => copied,
    };
    if let Err(error) = copied {
        tracing::debug!(%error, "stream ended");
    }
    // Both get what was passed on, and learn that nothing follows. One that does not read is not waited for.
    let end = async { tokio::join!(to_client.shutdown(), to_server.shutdown()) };
    let _late = tokio::time::timeout(FAREWELL, end).await;
}

#[cfg(test)]
mod tests;
