//! The public keys of requests, and the proofs that their owners have the private ones.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use serde_json::Value;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use crate::builtin::certificates::signature::{self as signatures, ED25519, P256, P384, P521};
use crate::validate::text;

/// A key of a type that requests may have.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Ed25519,
    P256,
    P384,
    P521,
    Rsa,
}

/// Why a key cannot be used.
#[derive(Debug, PartialEq)]
pub(super) enum Refused {
    /// Of another type.
    Unknown,
    /// Of an elliptic curve with this name.
    Curve(String),
    /// An RSA key with so many bits.
    Bits(usize),
    /// There is no key.
    Malformed,
    /// The signature is not that of the key.
    Signature,
}

/// The bytes in a field.
pub(super) fn bytes(spec: &Value, key: &str) -> Vec<u8> {
    STANDARD.decode(text(spec, key)).unwrap_or_default()
}

/// The public key in a stub request, as it is encoded, once its signature is verified.
pub(super) fn of_request(der: &[u8]) -> Result<Vec<u8>, Refused> {
    let request = parsed(der)?;
    let key = &request.certification_request_info.subject_pki;
    kind(key)?;
    signatures::check(&request).map_err(|_| Refused::Signature)?;
    Ok(key.raw.to_vec())
}

/// The public key in a stub request that was verified when it was made.
pub(super) fn known_of_request(der: &[u8]) -> Result<Vec<u8>, Refused> {
    let request = parsed(der)?;
    Ok(request.certification_request_info.subject_pki.raw.to_vec())
}

fn parsed(der: &[u8]) -> Result<X509CertificationRequest<'_>, Refused> {
    match X509CertificationRequest::from_der(der) {
        Ok(([], request)) => Ok(request),
        _ => Err(Refused::Malformed),
    }
}

/// Verifies that the owner of a public key has signed a text.
pub(super) fn prove(key: &[u8], text: &[u8], proof: &[u8]) -> Result<(), Refused> {
    let Ok(([], key)) = SubjectPublicKeyInfo::from_der(key) else {
        return Err(Refused::Malformed);
    };
    let algorithm: &'static dyn VerificationAlgorithm = match kind(&key)? {
        Kind::Ed25519 => &signature::ED25519,
        Kind::P256 => &signature::ECDSA_P256_SHA256_ASN1,
        Kind::P384 => &signature::ECDSA_P384_SHA256_ASN1,
        Kind::Rsa => &signature::RSA_PSS_2048_8192_SHA256,
        Kind::P521 => return Err(Refused::Signature),
    };
    UnparsedPublicKey::new(algorithm, &key.subject_public_key.data)
        .verify(text, proof)
        .map_err(|_| Refused::Signature)
}

fn kind(key: &SubjectPublicKeyInfo<'_>) -> Result<Kind, Refused> {
    if key.algorithm.algorithm.to_id_string() == ED25519 {
        return Ok(Kind::Ed25519);
    }
    match key.parsed() {
        Ok(PublicKey::RSA(rsa)) => match rsa.key_size() {
            3072 | 4096 => Ok(Kind::Rsa),
            bits => Err(Refused::Bits(bits)),
        },
        Ok(PublicKey::EC(_)) => {
            let curve = signatures::curve(key).ok_or(Refused::Malformed)?;
            match curve.as_str() {
                P256 => Ok(Kind::P256),
                P384 => Ok(Kind::P384),
                P521 => Ok(Kind::P521),
                "1.3.132.0.33" => Err(Refused::Curve("P-224".to_owned())),
                _ => Err(Refused::Malformed),
            }
        }
        Ok(_) => Err(Refused::Unknown),
        Err(_) => Err(Refused::Malformed),
    }
}
