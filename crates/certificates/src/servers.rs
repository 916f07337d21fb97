//! Certificates of servers.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::roots::{Purpose, Roots, verify};

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
            &self.roots,
            Purpose::Server,
            certificate,
            intermediates,
            now,
            by_chain,
        )?;
        verify_server_name(&parsed, name)?;
        Ok(ServerCertVerified::assertion())
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
