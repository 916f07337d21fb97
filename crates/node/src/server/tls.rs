//! Certificates of the HTTPS API.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use allot_certificates::{Authorities, FollowedFile, Presented, clients};
use allot_reflector::{Collection, Observed, observe};
use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use parking_lot::{Mutex, RwLock};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
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
    file: Option<PathBuf>,
    is_configured: bool,
}

impl Clients {
    /// Those of the configured CA, or none until the cluster's is found.
    ///
    /// # Errors
    /// The configured one cannot be read.
    pub(super) fn of(config: &Config) -> Result<Self, Error> {
        let file = config.tls.client_ca_file.clone();
        let configured = match (&file, &config.tls.client_ca_pem) {
            (Some(file), _) => Some(of_file(file)),
            (None, pem) => pem.as_deref().map(read),
        };
        let configured = configured.transpose().map_err(Error::Serve)?;
        Ok(Self {
            file,
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

    /// Uses the client CA in the file whenever that has changed. If none is configured: uses the cluster's as soon as it can be
    /// read, and whenever it has changed.
    pub(super) async fn follow(&self, client: Client) {
        if let Some(file) = &self.file {
            return self.follow_file(file).await;
        }
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

    async fn follow_file(&self, file: &Path) {
        let mut followed = FollowedFile::new(file, Vec::new());
        loop {
            let content = followed.changed().await.map_err(|it| it.to_string());
            match content.and_then(|pem| Ok((read(&pem)?, pem))) {
                Ok((authorities, pem)) => {
                    *self.authorities.write() = Some(authorities);
                    followed.accept(pem);
                }
                Err(error) => {
                    let file = file.display();
                    tracing::warn!(%file, error, "the client CA stays as it was");
                }
            }
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

fn of_file(file: &Path) -> Result<Authorities, String> {
    let pem = std::fs::read(file).map_err(|error| error.to_string());
    let read = pem.and_then(|pem| read(&pem));
    read.map_err(|error| format!("{}: {error}", file.display()))
}

fn read(pem: &[u8]) -> Result<Authorities, String> {
    Authorities::read(pem, Arc::new(rustls::crypto::ring::default_provider()))
}

/// The certificates of a server for several nodes. The API server names the node that it wants to reach, and connects only to a
/// kubelet that proves to be that node's.
#[derive(Debug)]
struct NodeCertificates {
    default: Arc<CertifiedKey>,
    nodes: HashSet<String>,
    /// Self-signed ones, made when they are needed.
    made: Mutex<HashMap<String, Arc<CertifiedKey>>>,
}

impl ResolvesServerCert for NodeCertificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name();
        let Some(node) = name.and_then(|name| self.nodes.get(name)) else {
            return Some(Arc::clone(&self.default));
        };
        let mut made = self.made.lock();
        if let Some(found) = made.get(node) {
            return Some(Arc::clone(found));
        }
        let own = Arc::new(self_signed(vec![node.clone()]).ok()?);
        made.insert(node.clone(), Arc::clone(&own));
        Some(own)
    }
}

/// A certificate for this run.
fn self_signed(names: Vec<String>) -> Result<CertifiedKey, Error> {
    let fail = |error: &dyn std::fmt::Display| Error::Serve(error.to_string());
    let made = rcgen::generate_simple_self_signed(names).map_err(|error| fail(&error))?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der());
    certified(
        vec![made.cert.der().clone()],
        key.map_err(|error| fail(&error))?,
    )
}

fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, Error> {
    let provider = rustls::crypto::ring::default_provider();
    let certified = CertifiedKey::from_der(chain, key, &provider);
    certified.map_err(|error| Error::Serve(error.to_string()))
}

/// TLS with the configured certificate, or with a self-signed one for this run. `nodes` are served as well.
///
/// # Errors
/// A certificate or key that cannot be used.
pub(super) fn acceptor(config: &Config, nodes: HashSet<String>) -> Result<TlsAcceptor, Error> {
    let fail = |error: &dyn std::fmt::Display| Error::Serve(error.to_string());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| fail(&error))?;
    let builder = builder.with_client_cert_verifier(clients::handshake(provider));
    let default = match (&config.tls.cert_pem, &config.tls.key_pem) {
        (Some(cert), Some(key)) => {
            let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(cert).collect();
            let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| fail(&error))?;
            certified(chain.map_err(|error| fail(&error))?, key)?
        }
        _ => self_signed(vec![
            config.node_name.clone(),
            config.address.to_string(),
            "localhost".to_owned(),
        ])?,
    };
    let mut server = builder.with_cert_resolver(Arc::new(NodeCertificates {
        default: Arc::new(default),
        nodes,
        made: Mutex::default(),
    }));
    // Upgrades need HTTP/1.1.
    server.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(server)))
}

#[cfg(test)]
mod tests {
    use allot_testing::wait;
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

    use super::*;

    /// The file was read once: a certificate of an authority that was taken out of it stayed good until a restart.
    #[tokio::test]
    async fn regression_the_client_ca_can_change() {
        let authority = || {
            let (mut params, key) = (CertificateParams::default(), KeyPair::generate().unwrap());
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let pem = params.self_signed(&key).unwrap().pem();
            (Issuer::new(params, key), pem)
        };
        let ((first, first_pem), (_, second_pem)) = (authority(), authority());
        let mut params = CertificateParams::default();
        let name = "kube-apiserver-kubelet-client";
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let presented = params.signed_by(&key, &first).unwrap();
        let presented = Presented::new(&[presented.der().clone()]);
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ca.crt");
        let mut config = Config::new("node", directory.path().join("node"));
        config.tls.client_ca_file = Some(file.clone());
        assert!(Clients::of(&config).is_err(), "it does not exist");
        std::fs::write(&file, &first_pem).unwrap();
        let clients = Arc::new(Clients::of(&config).unwrap());
        assert!(clients.user(&presented).is_some());
        let follow = Arc::clone(&clients);
        let watched = file.clone();
        let follow = tokio::spawn(async move { follow.follow_file(&watched).await });
        std::fs::write(&file, &second_pem).unwrap();
        let is_known = |wanted| clients.user(&presented).is_some() == wanted;
        wait::until_true("the other CA counts", || is_known(false)).await;
        let new = directory.path().join("new.crt");
        std::fs::write(&new, &first_pem).unwrap();
        std::fs::rename(&new, &file).unwrap();
        wait::until_true("the first CA counts again", || is_known(true)).await;
        follow.abort();
    }
}
