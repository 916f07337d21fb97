//! Certificates of servers.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

use crate::roots::{Purpose, Roots, check_itself, verify};

#[cfg(test)]
mod tests;

/// Trusts what authorities have signed that are valid themselves, and, as Go, a certificate that is itself one of the trusted
/// ones: the self-signed certificates that `openssl req -x509` makes are authorities and servers in one. Trusts nothing without
/// authorities.
#[derive(Debug)]
pub struct Trust {
    roots: Roots,
    provider: Arc<CryptoProvider>,
}

impl Trust {
    /// Trusts these authorities.
    pub fn new(roots: Roots, provider: Arc<CryptoProvider>) -> Self {
        Self { roots, provider }
    }

    /// Trusts these certificates; those that cannot be read are skipped, as in Go. `None` if there is none.
    pub fn of(
        certificates: impl Iterator<Item = CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Option<Self> {
        let mut roots = Roots::default();
        for certificate in certificates {
            let _ = roots.add(certificate);
        }
        (!roots.is_empty()).then(|| Self::new(roots, provider))
    }

    /// Verifies one of the trusted certificates as that of a server.
    fn verify_itself(
        certificate: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        check_itself(certificate, Purpose::Server, now)?;
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        Ok(ServerCertVerified::assertion())
    }
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = verify(
            &self.roots,
            Purpose::Server,
            intermediates,
            now,
            |roots, intermediates| {
                let provider = self.provider.clone();
                let verifier =
                    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
                        .build()
                        .map_err(|error| Error::General(error.to_string()))?;
                verifier.verify_server_cert(certificate, intermediates, name, ocsp, now)
            },
        );
        match verified {
            Err(_) if self.roots.contains(certificate) => {
                Self::verify_itself(certificate, name, now)
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
