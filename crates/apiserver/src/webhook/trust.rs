//! Which certificates of webhooks are good.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Trusts what the authorities have signed, and, as Go, a certificate that is itself one of the trusted ones: the
/// self-signed certificates that `openssl req -x509` makes are authorities and servers in one.
#[derive(Debug)]
pub(super) struct Trust {
    inner: Arc<WebPkiServerVerifier>,
    trusted: Vec<CertificateDer<'static>>,
}

impl Trust {
    /// Trusts these certificates; those that cannot be read are skipped, as in Go. `None` if there is none.
    ///
    /// # Errors
    /// Those of rustls, for none that is known.
    pub(super) fn of(
        certificates: impl Iterator<Item = CertificateDer<'static>>,
        provider: Arc<CryptoProvider>,
    ) -> Result<Option<Self>, String> {
        let mut roots = RootCertStore::empty();
        let trusted: Vec<_> = certificates
            .filter(|certificate| roots.add(certificate.clone()).is_ok())
            .collect();
        if trusted.is_empty() {
            return Ok(None);
        }
        let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let inner = inner.map_err(|error| error.to_string())?;
        Ok(Some(Self { inner, trusted }))
    }

    /// Verifies one of the trusted certificates as that of a server.
    fn verify_itself(
        &self,
        certificate: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let bad = |why: CertificateError| Error::InvalidCertificate(why);
        let (_, parsed) = X509Certificate::from_der(certificate)
            .map_err(|_| bad(CertificateError::BadEncoding))?;
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let validity = parsed.validity();
        if now < validity.not_before.timestamp() {
            return Err(bad(CertificateError::NotValidYet));
        }
        if now > validity.not_after.timestamp() {
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
        let verified = self
            .inner
            .verify_server_cert(certificate, intermediates, name, ocsp, now);
        match verified {
            Err(_) if self.trusted.iter().any(|it| it == certificate) => {
                self.verify_itself(certificate, name, now)
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
        self.inner
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
