//! The signature of a certificate request: the proof that its sender has the private key, by the rules of Go's
//! `CertificateRequest.CheckSignature`.

use ring::signature::{self as rings, UnparsedPublicKey, VerificationAlgorithm};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::signature_algorithm::SignatureAlgorithm;
use x509_parser::x509::SubjectPublicKeyInfo;

use SignatureError::{Ecdsa, Ed25519, Insecure, OtherKey, Rsa, Unimplemented};

const RSA_KEY: &str = "1.2.840.113549.1.1.1";
const EC_KEY: &str = "1.2.840.10045.2.1";
pub(super) const ED25519: &str = "1.3.101.112";
pub(super) const P256: &str = "1.2.840.10045.3.1.7";
pub(super) const P384: &str = "1.3.132.0.34";
pub(super) const P521: &str = "1.3.132.0.35";

/// Why a signature proves nothing. The texts are Go's.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(super) enum SignatureError {
    #[error("x509: cannot verify signature: algorithm unimplemented")]
    Unimplemented,
    #[error("x509: cannot verify signature: insecure algorithm {0}")]
    Insecure(&'static str),
    #[error(
        "x509: signature algorithm specifies an {signature} public key, but have public key of type {key}"
    )]
    OtherKey {
        signature: &'static str,
        key: &'static str,
    },
    #[error("crypto/rsa: verification error")]
    Rsa,
    #[error("x509: ECDSA verification failure")]
    Ecdsa,
    #[error("x509: Ed25519 verification failure")]
    Ed25519,
}

/// Checks that the owner of the request's key has signed it.
///
/// # Errors
/// It has not, or the algorithm is one that this server does not have: as in Go those with MD2, MD5 and DSA, and beyond
/// these ECDSA with a curve and a hash that do not belong together.
pub(super) fn check(request: &X509CertificationRequest<'_>) -> Result<(), SignatureError> {
    let key = &request.certification_request_info.subject_pki;
    let algorithm = &request.signature_algorithm;
    let message = request.certification_request_info.raw;
    let signature = &request.signature_value.data;
    let id = algorithm.algorithm.to_id_string();
    let family = match SignatureAlgorithm::try_from(algorithm) {
        Ok(SignatureAlgorithm::RSA | SignatureAlgorithm::RSASSA_PSS(_)) => "RSA",
        Ok(SignatureAlgorithm::ECDSA) => "ECDSA",
        Ok(SignatureAlgorithm::ED25519) => "Ed25519",
        _ => return Err(Unimplemented),
    };
    let (of, shown) = match key.algorithm.algorithm.to_id_string().as_str() {
        RSA_KEY => ("RSA", "*rsa.PublicKey"),
        EC_KEY => ("ECDSA", "*ecdsa.PublicKey"),
        ED25519 => ("Ed25519", "ed25519.PublicKey"),
        _ => return Err(Unimplemented),
    };
    if of != family {
        return Err(OtherKey {
            signature: family,
            key: shown,
        });
    }
    let algorithm: &'static dyn VerificationAlgorithm = match family {
        "RSA" => match SignatureAlgorithm::try_from(algorithm) {
            Ok(SignatureAlgorithm::RSASSA_PSS(parameters)) => {
                pss(&parameters.hash_algorithm_oid().to_id_string())?
            }
            _ => pkcs1(&id)?,
        },
        "ECDSA" if curve(key).as_deref() == Some(P521) => {
            return match id.as_str() {
                "1.2.840.10045.4.3.4" => p521(key, message, signature),
                _ => Err(Unimplemented),
            };
        }
        "ECDSA" => ecdsa(curve(key).as_deref().unwrap_or_default(), &id)?,
        _ => &rings::ED25519,
    };
    let verified = UnparsedPublicKey::new(algorithm, &key.subject_public_key.data);
    verified
        .verify(message, signature)
        .map_err(|_| match family {
            "RSA" => Rsa,
            "ECDSA" => Ecdsa,
            _ => Ed25519,
        })
}

/// The identifier of the curve of a key.
pub(super) fn curve(key: &SubjectPublicKeyInfo<'_>) -> Option<String> {
    let parameters = key.algorithm.parameters.as_ref()?;
    Some(parameters.as_oid().ok()?.to_id_string())
}

type Algorithm = Result<&'static dyn VerificationAlgorithm, SignatureError>;

fn pkcs1(id: &str) -> Algorithm {
    Ok(match id {
        "1.2.840.113549.1.1.2" => return Err(Insecure("MD2-RSA")),
        "1.2.840.113549.1.1.4" => return Err(Insecure("MD5-RSA")),
        // Go permits SHA-1 in requests.
        "1.2.840.113549.1.1.5" => &rings::RSA_PKCS1_1024_8192_SHA1_FOR_LEGACY_USE_ONLY,
        "1.2.840.113549.1.1.11" => &rings::RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY,
        "1.2.840.113549.1.1.12" => &rings::RSA_PKCS1_2048_8192_SHA384,
        "1.2.840.113549.1.1.13" => &rings::RSA_PKCS1_1024_8192_SHA512_FOR_LEGACY_USE_ONLY,
        _ => return Err(Unimplemented),
    })
}

fn pss(hash: &str) -> Algorithm {
    Ok(match hash {
        "2.16.840.1.101.3.4.2.1" => &rings::RSA_PSS_2048_8192_SHA256,
        "2.16.840.1.101.3.4.2.2" => &rings::RSA_PSS_2048_8192_SHA384,
        "2.16.840.1.101.3.4.2.3" => &rings::RSA_PSS_2048_8192_SHA512,
        _ => return Err(Unimplemented),
    })
}

fn ecdsa(curve: &str, id: &str) -> Algorithm {
    Ok(match (curve, id) {
        (P256, "1.2.840.10045.4.3.2") => &rings::ECDSA_P256_SHA256_ASN1,
        (P256, "1.2.840.10045.4.3.3") => &rings::ECDSA_P256_SHA384_ASN1,
        (P384, "1.2.840.10045.4.3.2") => &rings::ECDSA_P384_SHA256_ASN1,
        (P384, "1.2.840.10045.4.3.3") => &rings::ECDSA_P384_SHA384_ASN1,
        _ => return Err(Unimplemented),
    })
}

/// For the curve that ring does not have.
fn p521(
    key: &SubjectPublicKeyInfo<'_>,
    message: &[u8],
    signature: &[u8],
) -> Result<(), SignatureError> {
    use p521::ecdsa::signature::Verifier as _;
    let key = p521::ecdsa::VerifyingKey::from_sec1_bytes(&key.subject_public_key.data);
    let signature = p521::ecdsa::Signature::from_der(signature);
    match (key, signature) {
        (Ok(key), Ok(signature)) => key.verify(message, &signature).map_err(|_| Ecdsa),
        _ => Err(Ecdsa),
    }
}
