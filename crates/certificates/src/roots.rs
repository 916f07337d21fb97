//! Certificates of authorities: when they are valid, and what they may sign. Of the extensions of a root webpki reads the name
//! constraints alone, and of no certificate the key usage.

use std::collections::BTreeSet;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use rustls::{CertificateError, DistinguishedName, RootCertStore};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::X509Version;

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

/// What a certificate is presented for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Client,
    Server,
}

impl Purpose {
    /// Whether a certificate is good for it; one that names no purposes is good for all.
    fn suits(self, certificate: &X509Certificate<'_>) -> bool {
        match certificate.extended_key_usage() {
            Ok(None) => true,
            Ok(Some(usage)) => {
                let named = match self {
                    Purpose::Client => usage.value.client_auth,
                    Purpose::Server => usage.value.server_auth,
                };
                named || usage.value.any
            }
            Err(_) => false,
        }
    }
}

/// What a certificate may sign, by its extensions.
#[derive(Debug, Clone, Copy)]
struct Signs {
    for_clients: bool,
    for_servers: bool,
    /// So many certificates may be between it and the last one.
    between: usize,
}

impl Signs {
    /// `None` for a certificate that may sign no other.
    fn of(certificate: &X509Certificate<'_>) -> Option<Self> {
        let constraints = certificate.basic_constraints().ok()?.map(|it| it.value);
        let is_authority = match constraints {
            Some(constraints) => constraints.ca,
            None => certificate.version() != X509Version::V3,
        };
        let usage = certificate.key_usage().ok()?.map(|it| it.value);
        let signs = usage.is_none_or(|usage| usage.flags == 0 || usage.key_cert_sign());
        let most = constraints.and_then(|it| it.path_len_constraint);
        let between = most.map(|most| usize::try_from(most).unwrap_or(usize::MAX));
        (is_authority && signs).then(|| Self {
            for_clients: Purpose::Client.suits(certificate),
            for_servers: Purpose::Server.suits(certificate),
            between: between.unwrap_or(usize::MAX),
        })
    }

    fn is_for(self, purpose: Purpose) -> bool {
        match purpose {
            Purpose::Client => self.for_clients,
            Purpose::Server => self.for_servers,
        }
    }
}

/// Whether a certificate is valid at a time; one that cannot be read is not.
pub fn is_valid(der: &[u8], now: UnixTime) -> bool {
    Validity::read(der).is_some_and(|it| it.has_begun(now) && !it.has_ended(now))
}

/// The seconds since the epoch in which a certificate is valid; `None` if it cannot be read.
pub fn seconds_of(der: &[u8]) -> Option<std::ops::RangeInclusive<i64>> {
    Validity::read(der).map(|it| it.first..=it.last)
}

/// A time as certificates have it.
pub(crate) fn seconds(time: UnixTime) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

/// The certificate of an authority, and what is required of it.
#[derive(Debug)]
struct Root {
    certificate: CertificateDer<'static>,
    validity: Validity,
    /// `None` for a certificate that may sign no other.
    signs: Option<Signs>,
    /// Its name and key, as webpki needs them.
    anchor: TrustAnchor<'static>,
}

/// The certificates of authorities that are trusted as long as they are valid; by default none.
#[derive(Debug, Default)]
pub struct Roots(Vec<Root>);

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

    /// Those that can be read; the others are skipped, as in Go.
    pub fn readable(certificates: impl IntoIterator<Item = CertificateDer<'static>>) -> Self {
        let mut roots = Self::default();
        for certificate in certificates {
            let _ = roots.add(certificate);
        }
        roots
    }

    /// Trusts a certificate as well.
    fn add(&mut self, certificate: CertificateDer<'static>) -> Result<(), rustls::Error> {
        let (validity, signs) = match X509Certificate::from_der(&certificate) {
            Ok((_, parsed)) => (Validity::of(&parsed), Signs::of(&parsed)),
            Err(_) => return Err(CertificateError::BadEncoding.into()),
        };
        let mut anchors = RootCertStore::empty();
        anchors.add(certificate.clone())?;
        self.0.extend(anchors.roots.pop().map(|anchor| Root {
            certificate,
            validity,
            signs,
            anchor,
        }));
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn contains(&self, certificate: &CertificateDer<'_>) -> bool {
        self.0.iter().any(|root| root.certificate == *certificate)
    }

    pub(crate) fn subjects(&self) -> Vec<DistinguishedName> {
        let names = self.0.iter().map(|root| root.anchor.subject.as_ref());
        names.map(DistinguishedName::in_sequence).collect()
    }

    /// Those that may sign for a purpose, by how many certificates may be between them and the last one; if there is a time,
    /// those that are valid then.
    fn anchors(
        &self,
        purpose: Purpose,
        between: impl Fn(usize) -> bool,
        now: Option<UnixTime>,
    ) -> RootCertStore {
        let fit = self.0.iter().filter(|root| {
            let validity = root.validity;
            let may_sign = root
                .signs
                .is_some_and(|it| it.is_for(purpose) && between(it.between));
            may_sign && now.is_none_or(|now| validity.has_begun(now) && !validity.has_ended(now))
        });
        RootCertStore {
            roots: fit.map(|root| root.anchor.clone()).collect(),
        }
    }

    /// The next second in which other ones are valid.
    pub(crate) fn change_after(&self, now: UnixTime) -> Option<i64> {
        let validities = self.0.iter().map(|root| root.validity);
        validities.filter_map(|it| it.changes_after(now)).min()
    }
}

/// Verifies a certificate by its chain, as [`verify_chain`] does. One that is trusted itself needs no authority, as in Go.
pub(crate) fn verify(
    roots: &Roots,
    purpose: Purpose,
    certificate: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
    now: UnixTime,
    with: impl Fn(RootCertStore, &[CertificateDer<'_>]) -> Result<(), rustls::Error>,
) -> Result<(), rustls::Error> {
    match verify_chain(roots, purpose, intermediates, now, with) {
        Err(_) if roots.contains(certificate) => check_itself(certificate, purpose, now),
        verified => verified,
    }
}

/// Verifies with the roots that are valid now, and those of the presented intermediate certificates that may sign. Of a chain that
/// is good but for its root it says so, as Go does, instead of that its issuer is unknown.
fn verify_chain(
    roots: &Roots,
    purpose: Purpose,
    intermediates: &[CertificateDer<'_>],
    now: UnixTime,
    with: impl Fn(RootCertStore, &[CertificateDer<'_>]) -> Result<(), rustls::Error>,
) -> Result<(), rustls::Error> {
    let mut signing = Vec::new();
    for certificate in intermediates {
        let parsed = X509Certificate::from_der(certificate);
        if parsed.is_ok_and(|(_, it)| Signs::of(&it).is_some()) {
            signing.push(certificate.clone());
        }
    }
    let fits = |between: usize| between.min(signing.len());
    let known = roots.0.iter().filter_map(|root| root.signs);
    let depths = known.filter(|it| it.is_for(purpose));
    let depths: BTreeSet<usize> = depths.map(|it| fits(it.between)).collect();
    let mut outcome = Err(CertificateError::UnknownIssuer.into());
    for depth in depths.into_iter().rev() {
        // A root with a limit signs for the first of them alone: clients and servers send them in order.
        let few = &signing[..depth];
        let anchors = |now| roots.anchors(purpose, |between| fits(between) == depth, now);
        let (valid, all) = (anchors(Some(now)), anchors(None));
        let are_all_valid = valid.len() == all.len();
        let verified = match valid.is_empty() {
            true => Err(CertificateError::UnknownIssuer.into()),
            false => with(valid, few),
        };
        match verified {
            Err(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
                if are_all_valid {
                    continue;
                }
                match with(all, few) {
                    Ok(()) => outcome = Err(CertificateError::Expired.into()),
                    Err(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {}
                    // What is wrong with the certificate itself, such as that it has expired with its authority.
                    Err(error) => outcome = Err(error),
                }
            }
            Err(error) => outcome = Err(error),
            verified => return verified,
        }
    }
    outcome
}

/// Checks a certificate that is trusted itself.
fn check_itself(
    certificate: &CertificateDer<'_>,
    purpose: Purpose,
    now: UnixTime,
) -> Result<(), rustls::Error> {
    let bad = |why: CertificateError| Err(rustls::Error::InvalidCertificate(why));
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
        return bad(CertificateError::BadEncoding);
    };
    let validity = Validity::of(&parsed);
    if !validity.has_begun(now) {
        return bad(CertificateError::NotValidYet);
    }
    if validity.has_ended(now) {
        return bad(CertificateError::Expired);
    }
    if !purpose.suits(&parsed) {
        return bad(CertificateError::InvalidPurpose);
    }
    Ok(())
}
