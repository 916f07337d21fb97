//! Client certificates of connections. One that no authority has signed, or that has expired, does not fail the
//! handshake: as in kube-apiserver its requests are answered with 401, unless they have a token that is valid.

use std::io;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};

use crate::auth::certificate::{self, SubjectError};
use crate::identity::User;

#[cfg(test)]
mod tests;

/// The authorities whose certificates prove identities.
#[derive(Debug, Clone)]
pub(crate) struct Authorities(Arc<dyn ClientCertVerifier>);

impl Authorities {
    /// Those of a text in PEM.
    ///
    /// # Errors
    /// Malformed PEM, or no certificate in it.
    pub(crate) fn read(
        pem: &str,
        provider: Arc<rustls::crypto::CryptoProvider>,
    ) -> io::Result<Self> {
        let bad = |error: &dyn std::fmt::Display| io::Error::other(error.to_string());
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            let certificate = certificate.map_err(|error| bad(&error))?;
            roots.add(certificate).map_err(|error| bad(&error))?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .allow_unauthenticated()
            .build()
            .map_err(|error| bad(&error))?;
        Ok(Self(verifier))
    }

    /// The verifier for the handshake.
    pub(crate) fn handshake(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::new(Possession(self.0.clone()))
    }

    /// The user that a certificate names, if an authority has signed it and it is valid at this time.
    ///
    /// # Errors
    /// See [`SubjectError`].
    fn user(
        &self,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<Option<User>, SubjectError> {
        let Some((first, rest)) = chain.split_first() else {
            return Ok(None);
        };
        self.0
            .verify_client_cert(first, rest, now)
            .map_err(|error| SubjectError::Untrusted(error.to_string()))?;
        certificate::user(first)
    }
}

/// The certificate that the client of a connection has presented, with those of its issuers.
#[derive(Debug)]
pub(crate) struct Presented {
    authorities: Authorities,
    chain: Vec<CertificateDer<'static>>,
    user: Result<Option<User>, SubjectError>,
    /// The last second in which all of a good chain is valid.
    expires: Option<u64>,
}

impl Presented {
    /// A chain, which is verified once as long as none of its certificates expires.
    pub(crate) fn new(
        authorities: &Authorities,
        chain: &[CertificateDer<'static>],
        now: UnixTime,
    ) -> Self {
        let user = authorities.user(chain, now);
        let expires = match user {
            Ok(_) => chain.iter().map(|it| certificate::expires(it)).min(),
            Err(_) => None,
        };
        Self {
            authorities: authorities.clone(),
            chain: chain.to_vec(),
            user,
            expires,
        }
    }

    /// The user of a request at this time: a connection may outlast its certificate.
    ///
    /// # Errors
    /// See [`SubjectError`].
    pub(crate) fn user(&self, now: UnixTime) -> Result<Option<User>, SubjectError> {
        match self.expires {
            // Another chain to an authority may do without what has expired.
            Some(expires) if now.as_secs() > expires => self.authorities.user(&self.chain, now),
            _ => self.user.clone(),
        }
    }
}

/// Checks in the handshake only that the client has the key of its certificate.
#[derive(Debug)]
struct Possession(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Possession {
    fn offer_client_auth(&self) -> bool {
        self.0.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        // No identity follows from this: that is left to [`Presented`].
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
