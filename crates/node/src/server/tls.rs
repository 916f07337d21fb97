//! Certificates of the HTTPS API.

use std::sync::Arc;

use allot_certificates::{Authorities, Presented, clients};
use allot_reflector::{Collection, Observed, observe};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use parking_lot::RwLock;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio_rustls::TlsAcceptor;

use super::access::User;
use crate::config::Config;
use crate::error::Error;

/// Namespace of the config map with the cluster's client CA.
const NAMESPACE: &str = "kube-system";
const PUBLISHED: &str = "extension-apiserver-authentication";
const CLIENT_CA: &str = "client-ca-file";

/// Whose certificates prove identities of clients: of the configured CA, or of the one that the cluster publishes, which may
/// change. Requests on open connections are judged by the latest.
pub(super) struct Clients {
    authorities: RwLock<Option<Authorities>>,
    is_configured: bool,
}

impl Clients {
    /// Those of the configured CA, or none until the cluster's is found.
    ///
    /// # Errors
    /// The configured one cannot be read.
    pub(super) fn of(config: &Config) -> Result<Self, Error> {
        let configured = config.tls.client_ca_pem.as_deref().map(read).transpose();
        let configured = configured.map_err(Error::Serve)?;
        Ok(Self {
            is_configured: configured.is_some(),
            authorities: RwLock::new(configured),
        })
    }

    /// The user that a certificate proves now.
    pub(super) fn user(&self, presented: &Presented) -> Option<User> {
        let authorities = self.authorities.read().clone()?;
        match presented.identity(&authorities, UnixTime::now()) {
            Ok(identity) => identity.map(User::of),
            Err(error) => {
                tracing::debug!(%error, "a client certificate of the kubelet API is of no use");
                None
            }
        }
    }

    /// If no client CA is configured: uses the cluster's as soon as it can be read, and whenever it has changed.
    pub(super) async fn follow(&self, client: Client) {
        if self.is_configured {
            return;
        }
        let api = Api::<ConfigMap>::namespaced(client, NAMESPACE);
        let named = format!("metadata.name={PUBLISHED}");
        let mut seen = observe::<ConfigMap>(Collection::new(api, Some(&named)).optional());
        while let Some(observed) = seen.next().await {
            let map = match observed {
                Observed::Listed { items, .. } => items.into_iter().next(),
                Observed::Applied(map) => Some(*map),
                Observed::Deleted(_) => None,
            };
            self.published(map);
        }
    }

    fn published(&self, map: Option<ConfigMap>) {
        let pem = match map {
            Some(map) => map.data.and_then(|mut data| data.remove(CLIENT_CA)),
            None => return self.unusable("it does not exist, or may not be listed and watched"),
        };
        match pem.as_deref().map(|pem| read(pem.as_bytes())) {
            Some(Ok(found)) => {
                *self.authorities.write() = Some(found);
                tracing::info!(
                    "clients of the kubelet API are known by the cluster's CA in {NAMESPACE}/{PUBLISHED}"
                );
            }
            Some(Err(error)) => self.unusable(&error),
            None => self.unusable(&format!("it has no {CLIENT_CA}")),
        }
    }

    /// As for servers of Kubernetes, the last CA that could be read counts on.
    fn unusable(&self, why: &str) {
        match &*self.authorities.read() {
            Some(_) => tracing::warn!(
                "clients of the kubelet API are known by an earlier CA: the config map {NAMESPACE}/{PUBLISHED} cannot \
                 be used: {why}"
            ),
            None => tracing::warn!(
                "no client CA: logs, exec, attach and port-forward of this node's pods answer 401 to clients with \
                 certificates, such as the API server; set --client-ca-file. The config map {NAMESPACE}/{PUBLISHED} \
                 could not be used: {why}"
            ),
        }
    }
}

fn read(pem: &[u8]) -> Result<Authorities, String> {
    Authorities::read(pem, Arc::new(rustls::crypto::ring::default_provider()))
}

/// TLS with the configured certificate, or with a self-signed one for this run.
///
/// # Errors
/// A certificate or key that cannot be used.
pub(super) fn acceptor(config: &Config) -> Result<TlsAcceptor, Error> {
    let fail = |error: &dyn std::fmt::Display| Error::Serve(error.to_string());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| fail(&error))?;
    let builder = builder.with_client_cert_verifier(clients::handshake(provider));
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
