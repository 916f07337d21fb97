//! Certificates of clients. One that no authority has signed, or that has expired, does not fail the handshake: as in
//! kube-apiserver and kubelet the requests of its connection are answered with 401, unless they have a token that is valid.

use std::sync::Arc;

use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DistinguishedName, Error, RootCertStore};

use crate::roots::{Purpose, Roots, Validity, seconds, verify};
use crate::signatures::verify_signatures;
use crate::subject::{self, Identity, SubjectError};

#[cfg(test)]
mod tests;

/// The authorities whose certificates prove identities.
#[derive(Debug, Clone)]
pub struct Authorities {
    roots: Arc<Roots>,
    provider: Arc<CryptoProvider>,
}

impl Authorities {
    /// Those of a text in PEM.
    ///
    /// # Errors
    /// See [`Roots::read`].
    pub fn read(pem: &[u8], provider: Arc<CryptoProvider>) -> Result<Self, String> {
        Ok(Self {
            roots: Arc::new(Roots::read(pem)?),
            provider,
        })
    }

    /// The verifier for the handshake, which tells the client the names of these authorities.
    pub fn handshake(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::new(Possession {
            hints: self.roots.subjects(),
            provider: self.provider.clone(),
        })
    }

    /// The identity that a chain proves at this time, and when that has to be determined again.
    fn judge(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Verdict {
        Verdict {
            authorities: self.clone(),
            identity: self.identity(chain, now),
            from: seconds(now),
            until: self.change_after(chain, now),
        }
    }

    fn identity(
        &self,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<Option<Identity>, SubjectError> {
        let Some((first, rest)) = chain.split_first() else {
            return Ok(None);
        };
        let by_chain = |roots: RootCertStore, rest: &[CertificateDer<'_>]| {
            let provider = self.provider.clone();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| Error::General(error.to_string()))?;
            verifier.verify_client_cert(first, rest, now).map(drop)
        };
        verify(&self.roots, Purpose::Client, first, rest, now, by_chain)
            .map_err(|error| SubjectError::Untrusted(error.to_string()))?;
        subject::identity(first)
    }

    /// The next second in which the validity of a certificate begins or is over. Until then the same chain proves the same.
    /// The next second of all if there is a certificate whose validity cannot be read.
    fn change_after(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> i64 {
        let of_chain: Option<Vec<Validity>> = chain.iter().map(|it| Validity::read(it)).collect();
        let Some(of_chain) = of_chain else {
            return seconds(now).saturating_add(1);
        };
        let changes = of_chain.iter().filter_map(|it| it.changes_after(now));
        let changes = changes.chain(self.roots.change_after(now));
        changes.min().unwrap_or(i64::MAX)
    }
}

/// The verifier for the handshake of a server whose authorities may change: it names none to the client.
pub fn handshake(provider: Arc<CryptoProvider>) -> Arc<dyn ClientCertVerifier> {
    let hints = Vec::new();
    Arc::new(Possession { hints, provider })
}

/// What a chain proves while no certificate begins or ceases to be valid.
#[derive(Debug)]
struct Verdict {
    authorities: Authorities,
    identity: Result<Option<Identity>, SubjectError>,
    /// The first second for which it counts, and the one after the last.
    from: i64,
    until: i64,
}

impl Verdict {
    fn counts(&self, authorities: &Authorities, now: UnixTime) -> bool {
        let same = Arc::ptr_eq(&self.authorities.roots, &authorities.roots);
        same && (self.from..self.until).contains(&seconds(now))
    }
}

/// The certificate that the client of a connection has presented, with those of its issuers. The connection may outlast it, and
/// may outlast the trust in its authority: each request asks again.
#[derive(Debug)]
pub struct Presented {
    chain: Vec<CertificateDer<'static>>,
    verdict: Mutex<Option<Verdict>>,
}

impl Presented {
    /// A chain, which is verified by the first request.
    pub fn new(chain: &[CertificateDer<'static>]) -> Self {
        Self {
            chain: chain.to_vec(),
            verdict: Mutex::default(),
        }
    }

    /// The identity of a request at this time; `None` if the certificate names none. A chain is verified once as long as
    /// authorities and valid certificates are the same.
    ///
    /// # Errors
    /// See [`SubjectError`].
    pub fn identity(
        &self,
        authorities: &Authorities,
        now: UnixTime,
    ) -> Result<Option<Identity>, SubjectError> {
        let mut verdict = self.verdict.lock();
        match &*verdict {
            Some(known) if known.counts(authorities, now) => known.identity.clone(),
            _ => {
                let judged = authorities.judge(&self.chain, now);
                verdict.insert(judged).identity.clone()
            }
        }
    }
}

/// Checks in the handshake only that the client has the key of its certificate.
#[derive(Debug)]
struct Possession {
    hints: Vec<DistinguishedName>,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for Possession {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
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

    verify_signatures!();
}
