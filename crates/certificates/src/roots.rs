//! Certificates of authorities, and when they are valid.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{DistinguishedName, RootCertStore};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The first and the last second in which a certificate is valid, since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Validity {
    first: i64,
    last: i64,
}

impl Validity {
    /// That of a certificate; `None` if it cannot be read.
    pub(crate) fn read(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        Some(Self::of(&certificate))
    }

    pub(crate) fn of(certificate: &X509Certificate<'_>) -> Self {
        let validity = certificate.validity();
        Self {
            first: validity.not_before.timestamp(),
            last: validity.not_after.timestamp(),
        }
    }

    pub(crate) fn has_begun(self, now: UnixTime) -> bool {
        self.first <= seconds(now)
    }

    pub(crate) fn has_ended(self, now: UnixTime) -> bool {
        self.last < seconds(now)
    }

    /// The next second in which it begins, or is over.
    pub(crate) fn changes_after(self, now: UnixTime) -> Option<i64> {
        let over = self.last.saturating_add(1);
        let next = [self.first, over].into_iter();
        next.filter(|second| *second > seconds(now)).min()
    }
}

/// A time as certificates have it.
pub(crate) fn seconds(time: UnixTime) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

/// The certificates of authorities that are trusted as long as they are valid.
#[derive(Debug)]
pub struct Roots {
    certificates: Vec<CertificateDer<'static>>,
    validities: Vec<Validity>,
    /// Their names and keys, in the same order.
    anchors: RootCertStore,
}

impl Default for Roots {
    /// Nothing is trusted.
    fn default() -> Self {
        Self {
            certificates: Vec::new(),
            validities: Vec::new(),
            anchors: RootCertStore::empty(),
        }
    }
}

impl Roots {
    /// Those of a text in PEM.
    ///
    /// # Errors
    /// Malformed PEM or a malformed certificate, or none at all.
    pub fn read(pem: &[u8]) -> Result<Self, String> {
        let mut roots = Self::default();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| error.to_string())?;
            roots.add(certificate).map_err(|error| error.to_string())?;
        }
        if roots.is_empty() {
            return Err("there is no certificate".to_owned());
        }
        Ok(roots)
    }

    /// Trusts a certificate as well.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn add(&mut self, certificate: CertificateDer<'static>) -> Result<(), rustls::Error> {
        let malformed = rustls::CertificateError::BadEncoding;
        let validity = Validity::read(&certificate).ok_or(malformed)?;
        self.anchors.add(certificate.clone())?;
        self.certificates.push(certificate);
        self.validities.push(validity);
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.certificates.is_empty()
    }

    pub(crate) fn contains(&self, certificate: &CertificateDer<'_>) -> bool {
        self.certificates.iter().any(|it| it == certificate)
    }

    pub(crate) fn subjects(&self) -> Vec<DistinguishedName> {
        self.anchors.subjects()
    }

    /// All of them, whether they are valid or not.
    pub(crate) fn all(&self) -> RootCertStore {
        self.anchors.clone()
    }

    /// Those that are valid at a time.
    pub(crate) fn valid(&self, now: UnixTime) -> RootCertStore {
        let anchors = self.anchors.roots.iter().zip(&self.validities);
        let valid = anchors.filter(|(_, it)| it.has_begun(now) && !it.has_ended(now));
        RootCertStore {
            roots: valid.map(|(anchor, _)| anchor.clone()).collect(),
        }
    }

    /// The next second in which other ones are valid.
    pub(crate) fn change_after(&self, now: UnixTime) -> Option<i64> {
        let changes = self.validities.iter();
        changes.filter_map(|it| it.changes_after(now)).min()
    }
}

/// Verifies with the roots that are valid now. Of a chain that is good but for its root it says so, as Go does, instead of that
/// its issuer is unknown.
pub(crate) fn verify<T>(
    roots: &Roots,
    now: UnixTime,
    with: impl Fn(RootCertStore) -> Result<T, rustls::Error>,
) -> Result<T, rustls::Error> {
    let valid = roots.valid(now);
    let all = valid.len() == roots.certificates.len();
    let verified = match valid.is_empty() {
        true => Err(rustls::CertificateError::UnknownIssuer.into()),
        false => with(valid),
    };
    match verified {
        Err(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer))
            if !all && with(roots.all()).is_ok() =>
        {
            Err(rustls::CertificateError::Expired.into())
        }
        verified => verified,
    }
}
