//! Certificates of the HTTPS API.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use parking_lot::Mutex;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio_rustls::TlsAcceptor;

use crate::config::Config;
use crate::error::Error;
use crate::pods::Node;

/// Namespace of the config map with the cluster's client CA.
const NAMESPACE: &str = "kube-system";
const PUBLISHED: &str = "extension-apiserver-authentication";
const CLIENT_CA: &str = "client-ca-file";
/// Delay before the API server is asked again after a failure or an empty answer.
const AGAIN: Duration = Duration::from_secs(2);
const LATER: Duration = Duration::from_secs(5 * 60);

/// If no client CA is configured: uses the cluster's once it can be read. Ends when there is nothing more to do.
pub(super) async fn find_authority(node: &Node, acceptor: &Mutex<TlsAcceptor>) {
    if node.config.tls.client_ca_pem.is_some() {
        return;
    }
    let api = Api::<ConfigMap>::namespaced(node.client.clone(), NAMESPACE);
    let mut told = false;
    loop {
        let (why, pause) = match api.get_opt(PUBLISHED).await {
            Ok(Some(map)) => match map.data.and_then(|mut data| data.remove(CLIENT_CA)) {
                Some(pem) => {
                    let mut config = node.config.clone();
                    config.tls.client_ca_pem = Some(pem.into_bytes());
                    match self::acceptor(&config) {
                        Ok(found) => {
                            *acceptor.lock() = found;
                            tracing::info!(
                                "clients of the kubelet API are known by the cluster's CA in {NAMESPACE}/{PUBLISHED}"
                            );
                            return;
                        }
                        Err(error) => (error.to_string(), LATER),
                    }
                }
                None => (format!("it has no {CLIENT_CA}"), LATER),
            },
            Ok(None) => ("it is not there".to_owned(), LATER),
            Err(kube::Error::Api(status)) if matches!(status.code, 401 | 403) => {
                (status.message.clone(), LATER)
            }
            Err(error) => {
                tracing::debug!(%error, "the cluster's CA cannot be read yet");
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        if !told {
            told = true;
            tracing::warn!(
                "no client CA: logs, exec, attach and port-forward of this node's pods answer 401 to clients with \
                 certificates, such as the API server; set --client-ca-file. The config map {NAMESPACE}/{PUBLISHED} \
                 could not be used: {why}"
            );
        }
        tokio::time::sleep(pause).await;
    }
}

/// TLS with the configured certificate, or with a self-signed one for this run.
///
/// # Errors
/// A certificate, key or authority that cannot be used.
pub(crate) fn acceptor(config: &Config) -> Result<TlsAcceptor, Error> {
    let fail = |error: &dyn std::fmt::Display| Error::Serve(error.to_string());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| fail(&error))?;
    let builder = match &config.tls.client_ca_pem {
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(pem) {
                roots
                    .add(certificate.map_err(|error| fail(&error))?)
                    .map_err(|error| fail(&error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| fail(&error))?;
            builder.with_client_cert_verifier(verifier)
        }
        None => builder.with_no_client_auth(),
    };
    let (chain, key) = match (&config.tls.cert_pem, &config.tls.key_pem) {
        (Some(cert), Some(key)) => {
            let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(cert).collect();
            let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| fail(&error))?;
            (chain.map_err(|error| fail(&error))?, key)
        }
        _ => {
            let names = vec![
                config.node_name.clone(),
                config.address.to_string(),
                "localhost".to_owned(),
            ];
            let made = rcgen::generate_simple_self_signed(names).map_err(|error| fail(&error))?;
            let key = PrivateKeyDer::try_from(made.signing_key.serialize_der())
                .map_err(|error| fail(&error))?;
            (vec![made.cert.der().clone()], key)
        }
    };
    let mut server = builder
        .with_single_cert(chain, key)
        .map_err(|error| fail(&error))?;
    // Upgrades need HTTP/1.1.
    server.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(server)))
}
