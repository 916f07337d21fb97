//! Certificates of the HTTPS API.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio_rustls::TlsAcceptor;

use crate::config::Config;
use crate::error::Error;

/// TLS with the configured certificate, or with one made up for this run.
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
