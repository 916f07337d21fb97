//! Certificates of servers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{Error, RootCertStore};

use crate::roots::{Purpose, Roots, verify};
use crate::signatures::verify_signatures;

#[cfg(test)]
mod tests;

/// A file of authorities is read again after so long: that of a pod's account changes with the cluster's.
const REREAD: Duration = Duration::from_secs(60);

/// Trusts what authorities have signed that are valid themselves, and, as Go, a certificate that is itself one of the trusted
/// ones: the self-signed certificates that `openssl req -x509` makes are authorities and servers in one. Trusts nothing without
/// authorities.
#[derive(Debug)]
pub struct Trust {
    roots: Source,
    provider: Arc<CryptoProvider>,
}

/// Where the authorities are from.
#[derive(Debug)]
enum Source {
    Fixed(Arc<Roots>),
    /// The file, when it was read, and what it had then.
    File(PathBuf, Mutex<(Instant, Arc<Roots>)>),
}

impl Source {
    fn current(&self) -> Arc<Roots> {
        let (file, known) = match self {
            Source::Fixed(roots) => return Arc::clone(roots),
            Source::File(file, known) => (file, known),
        };
        let mut known = known.lock();
        if known.0.elapsed() >= REREAD {
            known.0 = Instant::now();
            match read(file) {
                Ok(roots) => known.1 = Arc::new(roots),
                Err(error) => tracing::warn!(error, "the last authorities stay"),
            }
        }
        Arc::clone(&known.1)
    }
}

fn read(file: &Path) -> Result<Roots, String> {
    let pem = std::fs::read(file).map_err(|error| error.to_string());
    let roots = pem.and_then(|pem| Roots::read(&pem));
    roots.map_err(|error| format!("{}: {error}", file.display()))
}

impl Trust {
    /// Trusts these authorities.
    pub fn new(roots: Roots, provider: Arc<CryptoProvider>) -> Self {
        let roots = Source::Fixed(Arc::new(roots));
        Self { roots, provider }
    }

    /// Trusts the authorities in a file, which is read again when a server is verified, at most once a minute. If it cannot be
    /// used by then, the last ones stay.
    ///
    /// # Errors
    /// The file cannot be read, or see [`Roots::read`].
    pub fn of_file(file: PathBuf, provider: Arc<CryptoProvider>) -> Result<Self, String> {
        let known = Mutex::new((Instant::now(), Arc::new(read(&file)?)));
        let roots = Source::File(file, known);
        Ok(Self { roots, provider })
    }

    /// Trusts these certificates; those that cannot be read are skipped, as in Go. `None` if there is none.
    pub fn of(
        certificates: impl Iterator<Item = CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Option<Self> {
        let roots = Roots::readable(certificates);
        (!roots.is_empty()).then(|| Self::new(roots, provider))
    }
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(certificate)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        let by_chain = |roots: RootCertStore, intermediates: &[CertificateDer<'_>]| {
            verify_server_cert_signed_by_trust_anchor(
                &parsed,
                &roots,
                intermediates,
                now,
                algorithms,
            )
        };
        verify(
            &self.roots.current(),
            Purpose::Server,
            certificate,
            intermediates,
            now,
            by_chain,
        )?;
        verify_server_name(&parsed, name)?;
        Ok(ServerCertVerified::assertion())
    }

    verify_signatures!();
}

/// Verifies only that the peer has the key of its certificate. Kubelets have self-signed serving certificates by default, and
/// an APIService may say `insecureSkipTLSVerify`; kube-apiserver does not verify these either.
#[derive(Debug)]
pub struct AnyServer {
    provider: Arc<CryptoProvider>,
}

impl AnyServer {
    /// The provider verifies signatures of the handshake.
    pub fn new(provider: Arc<CryptoProvider>) -> Self {
        Self { provider }
    }
}

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    verify_signatures!();
}
