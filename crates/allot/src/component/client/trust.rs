//! Which servers are trusted: as by Go's clients those whose authority is valid itself. The library asks for less.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use allot_certificates::Trust;
use allot_certificates::roots::{Roots, is_valid};
use kube::client::ConfigExt;
use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

/// A file of authorities is read again after so long: that of a pod's account changes with the cluster's.
const REREAD: Duration = Duration::from_secs(60);

/// TLS for the server of a configuration.
///
/// # Errors
/// Certificates or keys that cannot be used.
pub(super) fn tls(config: &kube::Config) -> anyhow::Result<ClientConfig> {
    let mut tls = config.rustls_client_config()?;
    if config.accept_invalid_certs {
        return Ok(tls);
    }
    let provider = Arc::clone(tls.crypto_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match (&config.root_cert_file, &config.root_cert) {
        (Some(file), _) => Arc::new(OfFile::read(file.clone(), provider)?),
        (None, Some(roots)) => Arc::new(of(roots.iter().cloned().map(Into::into), provider)),
        (None, None) => {
            let all = rustls_native_certs::load_native_certs().certs;
            Arc::new(of(all.into_iter(), provider))
        }
    };
    tls.dangerous().set_certificate_verifier(verifier);
    Ok(tls)
}

/// Leaves out the authorities that are not valid now, for clients that do not look at that.
pub(super) fn forget_expired(config: &mut kube::Config) {
    if let Some(roots) = &mut config.root_cert {
        roots.retain(|root| is_valid(root, UnixTime::now()));
    }
}

fn of(
    certificates: impl Iterator<Item = CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
) -> Trust {
    Trust::new(Roots::readable(certificates), provider)
}

/// Trusts the authorities in a file as it is now.
#[derive(Debug)]
struct OfFile {
    file: PathBuf,
    provider: Arc<CryptoProvider>,
    known: Mutex<(Instant, Arc<Trust>)>,
}

impl OfFile {
    fn read(file: PathBuf, provider: Arc<CryptoProvider>) -> anyhow::Result<Self> {
        let trust = Self::trust(&file, &provider).map_err(anyhow::Error::msg)?;
        Ok(Self {
            file,
            provider,
            known: Mutex::new((Instant::now(), Arc::new(trust))),
        })
    }

    fn trust(file: &Path, provider: &Arc<CryptoProvider>) -> Result<Trust, String> {
        let pem = std::fs::read(file).map_err(|error| error.to_string());
        let roots = pem.and_then(|pem| Roots::read(&pem));
        match roots {
            Ok(roots) => Ok(Trust::new(roots, Arc::clone(provider))),
            Err(error) => Err(format!("{}: {error}", file.display())),
        }
    }

    fn current(&self) -> Arc<Trust> {
        let mut known = self.known.lock();
        if known.0.elapsed() >= REREAD {
            known.0 = Instant::now();
            match Self::trust(&self.file, &self.provider) {
                Ok(trust) => known.1 = Arc::new(trust),
                Err(error) => tracing::warn!(error, "the last authorities stay"),
            }
        }
        Arc::clone(&known.1)
    }
}

impl ServerCertVerifier for OfFile {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let trust = self.current();
        trust.verify_server_cert(certificate, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let trust = Arc::clone(&self.known.lock().1);
        trust.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let trust = Arc::clone(&self.known.lock().1);
        trust.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.known.lock().1.supported_verify_schemes()
    }
}
