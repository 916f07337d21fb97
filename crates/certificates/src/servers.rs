//! Certificates of servers.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::roots::{Roots, Validity, verify};

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
        let bad = |why: CertificateError| Error::InvalidCertificate(why);
        let (_, parsed) = X509Certificate::from_der(certificate)
            .map_err(|_| bad(CertificateError::BadEncoding))?;
        let validity = Validity::of(&parsed);
        if !validity.has_begun(now) {
            return Err(bad(CertificateError::NotValidYet));
        }
        if validity.has_ended(now) {
            return Err(bad(CertificateError::Expired));
        }
        let usage = parsed
            .extended_key_usage()
            .map_err(|_| bad(CertificateError::BadEncoding))?;
        if usage.is_some_and(|usage| !usage.value.any && !usage.value.server_auth) {
            return Err(bad(CertificateError::InvalidPurpose));
        }
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
        let verified = verify(&self.roots, now, |roots: RootCertStore| {
            let provider = self.provider.clone();
            let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|error| Error::General(error.to_string()))?;
            verifier.verify_server_cert(certificate, intermediates, name, ocsp, now)
        });
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
