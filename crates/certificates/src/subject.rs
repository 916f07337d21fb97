//! The subject of a certificate or certificate request: the common name is the user, each organization a group.
//!
//! The strings of a subject come in several encodings. All that Go reads are read here too, and one that cannot be read
//! is an error: omitting a group could omit a right or a check.

use ring::digest::{SHA256, digest};
use x509_parser::asn1_rs::{Any, Oid, Tag, oid};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::X509Name;

#[cfg(test)]
mod tests;

const COMMON_NAME: Oid<'static> = oid!(2.5.4.3);
const ORGANIZATION: Oid<'static> = oid!(2.5.4.10);
/// Kubernetes' own attribute for the uid of a user.
const USER_ID: Oid<'static> = oid!(1.3.6.1.4.1.57683.2);
/// `extra` key of the credential that a user has authenticated with.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The error of a certificate or certificate request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubjectError {
    /// It is none.
    #[error("malformed certificate or certificate request")]
    Malformed,
    /// No authority has signed it, or it is not valid now.
    #[error("the certificate is not trusted: {0}")]
    Untrusted(String),
    /// A string of its subject cannot be read.
    #[error("the subject holds a string that can not be read")]
    Text,
    /// The UID of the user is repeated or empty.
    #[error("the subject names the uid of its user {0}")]
    Uid(&'static str),
}

/// The names in a subject that Kubernetes uses.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// The last common name, as in Go.
    pub common_name: String,
    /// All organizations.
    pub organizations: Vec<String>,
    uids: Vec<String>,
}

impl Subject {
    fn of(name: &X509Name<'_>) -> Result<Self, SubjectError> {
        let mut subject = Subject::default();
        for attribute in name.iter_attributes() {
            let value = || text(attribute.attr_value()).ok_or(SubjectError::Text);
            let kind = attribute.attr_type();
            if *kind == COMMON_NAME {
                subject.common_name = value()?;
            } else if *kind == ORGANIZATION {
                subject.organizations.push(value()?);
            } else if *kind == USER_ID {
                subject.uids.push(value()?);
            }
        }
        Ok(subject)
    }

    fn uid(self) -> Result<String, SubjectError> {
        let mut uids = self.uids.into_iter();
        match (uids.next(), uids.next()) {
            (None, _) => Ok(String::new()),
            (Some(uid), None) if uid.is_empty() => Err(SubjectError::Uid("with an empty string")),
            (Some(uid), None) => Ok(uid),
            (Some(_), Some(_)) => Err(SubjectError::Uid("several times")),
        }
    }
}

/// The user that a certificate names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The common name, which is not empty.
    pub name: String,
    /// The organizations.
    pub groups: Vec<String>,
    /// Empty unless the subject has Kubernetes' attribute for it.
    pub uid: String,
    /// The digest of the certificate, the value of [`CREDENTIAL_ID`].
    pub credential_id: String,
}

/// The identity in a certificate, which this does not verify; `None` if it names no user.
///
/// # Errors
/// See [`SubjectError`].
pub fn identity(der: &[u8]) -> Result<Option<Identity>, SubjectError> {
    let (_, certificate) = X509Certificate::from_der(der).map_err(|_| SubjectError::Malformed)?;
    let mut subject = Subject::of(certificate.subject())?;
    if subject.common_name.is_empty() {
        return Ok(None);
    }
    let hash: String = digest(&SHA256, der)
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Ok(Some(Identity {
        name: std::mem::take(&mut subject.common_name),
        groups: std::mem::take(&mut subject.organizations),
        uid: subject.uid()?,
        credential_id: format!("X509SHA256={hash}"),
    }))
}

/// The subject of a request for a certificate, PEM.
///
/// # Errors
/// See [`SubjectError`].
pub fn requested(pem: &[u8]) -> Result<Subject, SubjectError> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(pem).map_err(|_| SubjectError::Malformed)?;
    let (_, request) =
        X509CertificationRequest::from_der(&pem.contents).map_err(|_| SubjectError::Malformed)?;
    Subject::of(&request.certification_request_info.subject)
}

/// A string of a subject, in any of the encodings that X.509 has for it.
fn text(value: &Any<'_>) -> Option<String> {
    let bytes = value.as_bytes();
    match value.tag() {
        Tag::Utf8String => std::str::from_utf8(bytes).ok().map(str::to_owned),
        Tag::PrintableString | Tag::Ia5String | Tag::NumericString | Tag::VisibleString => {
            let ascii = std::str::from_utf8(bytes).ok()?;
            ascii.is_ascii().then(|| ascii.to_owned())
        }
        // Go reads this obsolete encoding as Latin-1, which is nearly correct.
        Tag::T61String => Some(bytes.iter().map(|byte| char::from(*byte)).collect()),
        Tag::BmpString => {
            let (units, rest) = bytes.as_chunks::<2>();
            let units: Vec<u16> = units.iter().map(|unit| u16::from_be_bytes(*unit)).collect();
            // Some write the end of the string into it.
            let units = units.strip_suffix(&[0]).unwrap_or(&units);
            String::from_utf16(units).ok().filter(|_| rest.is_empty())
        }
        Tag::UniversalString => {
            let (units, rest) = bytes.as_chunks::<4>();
            let decoded = units
                .iter()
                .map(|unit| char::from_u32(u32::from_be_bytes(*unit)));
            decoded
                .collect::<Option<String>>()
                .filter(|_| rest.is_empty())
        }
        _ => None,
    }
}
