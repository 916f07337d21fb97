//! Keys of tokens: RSA and ECDSA, read from PEM as kube-apiserver reads them, or from what issuers publish; signatures and
//! documents of JSON web tokens (RFC 7515, 7517, 7518).
//!
//! A key verifies only algorithms of its own type: neither `none`, nor a code made with the public key as a secret, nor an
//! algorithm of another curve is ever tried.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use rustls::SignatureScheme;
use rustls::sign::SigningKey;
use rustls_pki_types::{PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};
use serde_json::{Value, json};
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::public_key::PublicKey as Parsed;
use x509_parser::x509::SubjectPublicKeyInfo;

mod document;

/// Object identifiers of the curves.
const P256: &str = "1.2.840.10045.3.1.7";
const P384: &str = "1.3.132.0.34";

/// The type of a key, with its public part as documents show it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    P256,
    P384,
}

/// A key that verifies tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyingKey {
    /// The hash of the key in its standard form, by which tokens name it.
    id: String,
    kind: Kind,
    /// What verifies: the RSA key, or the point on the curve.
    bits: Vec<u8>,
}

/// A key that signs tokens.
#[derive(Clone)]
pub struct TokenKey {
    key: Arc<dyn SigningKey>,
    public: VerifyingKey,
}

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TokenKey").field(&self.public.id).finish()
    }
}

impl VerifyingKey {
    /// All keys of a PEM file: public and private ones, and those of certificates. Other blocks are skipped.
    ///
    /// # Errors
    /// kube-apiserver's text if there is none.
    pub fn all_from_pem(text: &[u8]) -> Result<Vec<Self>, String> {
        let blocks = Pem::iter_from_buffer(text).map_while(Result::ok);
        let keys: Vec<Self> = blocks
            .filter_map(|block| match block.label.as_str() {
                "PUBLIC KEY" => Self::from_spki(&block.contents),
                "CERTIFICATE" => {
                    let (_, certificate) = X509Certificate::from_der(&block.contents).ok()?;
                    Self::from_spki(certificate.public_key().raw)
                }
                _ => TokenKey::from_block(&block).map(|key| key.public),
            })
            .collect();
        match keys.is_empty() {
            true => Err("data does not contain any valid RSA or ECDSA public keys".to_owned()),
            false => Ok(keys),
        }
    }

    fn from_spki(der: &[u8]) -> Option<Self> {
        let (rest, info) = SubjectPublicKeyInfo::from_der(der).ok()?;
        if !rest.is_empty() {
            return None;
        }
        let trimmed = |number: &[u8]| {
            let zeros = number.iter().take_while(|byte| **byte == 0).count();
            number[zeros..].to_vec()
        };
        let kind = match info.parsed().ok()? {
            Parsed::RSA(key) => Kind::Rsa {
                modulus: trimmed(key.modulus),
                exponent: trimmed(key.exponent),
            },
            Parsed::EC(_) => {
                let curve = info.algorithm.parameters.as_ref()?.as_oid().ok()?;
                match curve.to_id_string().as_str() {
                    P256 => Kind::P256,
                    P384 => Kind::P384,
                    _ => return None,
                }
            }
            _ => return None,
        };
        let hash = ring::digest::digest(&ring::digest::SHA256, der);
        Some(VerifyingKey {
            id: URL_SAFE_NO_PAD.encode(hash),
            kind,
            bits: info.subject_public_key.data.to_vec(),
        })
    }

    /// By this name tokens refer to the key.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The algorithm that this server signs with such a key.
    pub fn algorithm(&self) -> &'static str {
        match self.kind {
            Kind::Rsa { .. } => "RS256",
            Kind::P256 => "ES256",
            Kind::P384 => "ES384",
        }
    }

    /// The signature is one of the text by this key, made with this algorithm.
    pub fn verifies(&self, algorithm: &str, text: &[u8], sent: &[u8]) -> bool {
        let verifier: &dyn VerificationAlgorithm = match (&self.kind, algorithm) {
            (Kind::Rsa { .. }, "RS256") => &signature::RSA_PKCS1_2048_8192_SHA256,
            (Kind::Rsa { .. }, "RS384") => &signature::RSA_PKCS1_2048_8192_SHA384,
            (Kind::Rsa { .. }, "RS512") => &signature::RSA_PKCS1_2048_8192_SHA512,
            (Kind::Rsa { .. }, "PS256") => &signature::RSA_PSS_2048_8192_SHA256,
            (Kind::Rsa { .. }, "PS384") => &signature::RSA_PSS_2048_8192_SHA384,
            (Kind::Rsa { .. }, "PS512") => &signature::RSA_PSS_2048_8192_SHA512,
            (Kind::P256, "ES256") => &signature::ECDSA_P256_SHA256_FIXED,
            (Kind::P384, "ES384") => &signature::ECDSA_P384_SHA384_FIXED,
            _ => return false,
        };
        let key = UnparsedPublicKey::new(verifier, &self.bits);
        key.verify(text, sent).is_ok()
    }

    /// The key as `/openid/v1/jwks` shows it.
    pub fn document(&self) -> Value {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let mut document = json!({"use": "sig", "kid": self.id, "alg": self.algorithm()});
        let (curve, point) = match &self.kind {
            Kind::Rsa { modulus, exponent } => {
                document["kty"] = "RSA".into();
                document["n"] = encode(modulus).into();
                document["e"] = encode(exponent).into();
                return document;
            }
            Kind::P256 => ("P-256", &self.bits),
            Kind::P384 => ("P-384", &self.bits),
        };
        document["kty"] = "EC".into();
        document["crv"] = curve.into();
        // Uncompressed point: 0x04, x, y.
        let point = point.get(1..).unwrap_or_default();
        let (x, y) = point.split_at(point.len() / 2);
        document["x"] = encode(x).into();
        document["y"] = encode(y).into();
        document
    }
}

impl TokenKey {
    /// The first private key of a PEM file.
    ///
    /// # Errors
    /// kube-apiserver's text if there is none that can sign tokens.
    pub fn from_pem(text: &[u8]) -> Result<Self, String> {
        let mut blocks = Pem::iter_from_buffer(text).map_while(Result::ok);
        let found = blocks.find_map(|block| Self::from_block(&block));
        found.ok_or_else(|| "data does not contain a valid RSA or ECDSA private key".to_owned())
    }

    /// A key in PKCS#8, DER.
    ///
    /// # Errors
    /// The bytes are no such key.
    pub fn from_pkcs8(der: &[u8]) -> Result<Self, String> {
        let key = PrivatePkcs8KeyDer::from(der.to_vec()).into();
        Self::of(&key).ok_or_else(|| "no RSA or ECDSA key in PKCS#8".to_owned())
    }

    /// A new key.
    ///
    /// # Errors
    /// Those of the generator.
    pub fn generate() -> Result<Self, String> {
        let key = rcgen::KeyPair::generate().map_err(|error| error.to_string())?;
        Self::from_pkcs8(&key.serialize_der())
    }

    fn from_block(block: &Pem) -> Option<Self> {
        let der = block.contents.clone();
        let key: PrivateKeyDer<'static> = match block.label.as_str() {
            "PRIVATE KEY" => PrivatePkcs8KeyDer::from(der).into(),
            "RSA PRIVATE KEY" => PrivatePkcs1KeyDer::from(der).into(),
            "EC PRIVATE KEY" => PrivateSec1KeyDer::from(der).into(),
            _ => return None,
        };
        Self::of(&key)
    }

    fn of(key: &PrivateKeyDer<'_>) -> Option<Self> {
        let key = rustls::crypto::ring::sign::any_supported_type(key).ok()?;
        let public = VerifyingKey::from_spki(key.public_key()?.as_ref())?;
        Some(TokenKey { key, public })
    }

    /// The key that verifies what this one signs.
    pub fn public(&self) -> &VerifyingKey {
        &self.public
    }

    /// The signature of a text in the form of JSON web tokens.
    ///
    /// # Errors
    /// Those of the random generator.
    pub fn sign(&self, text: &[u8]) -> Result<Vec<u8>, String> {
        let (scheme, size) = match self.public.kind {
            Kind::Rsa { .. } => (SignatureScheme::RSA_PKCS1_SHA256, None),
            Kind::P256 => (SignatureScheme::ECDSA_NISTP256_SHA256, Some(32)),
            Kind::P384 => (SignatureScheme::ECDSA_NISTP384_SHA384, Some(48)),
        };
        let signer = self.key.choose_scheme(&[scheme]);
        let signer = signer.ok_or("the key cannot sign tokens")?;
        let made = signer.sign(text).map_err(|error| error.to_string())?;
        match size {
            None => Ok(made),
            Some(size) => fixed(&made, size).ok_or_else(|| "a signature is malformed".to_owned()),
        }
    }
}

/// Both numbers of an ECDSA signature in so many bytes each, from the form that TLS has for them.
fn fixed(der: &[u8], size: usize) -> Option<Vec<u8>> {
    // A sequence of two integers, each shorter than 128 bytes, as is all of it.
    let [0x30, length, body @ ..] = der else {
        return None;
    };
    if body.len() != usize::from(*length) {
        return None;
    }
    let (mut rest, mut out) = (body, Vec::with_capacity(2 * size));
    for _ in 0..2 {
        let [0x02, length, tail @ ..] = rest else {
            return None;
        };
        let (number, tail) = tail.split_at_checked(usize::from(*length))?;
        let zeros = number.iter().take_while(|byte| **byte == 0).count();
        let number = &number[zeros..];
        out.resize(out.len() + size.checked_sub(number.len())?, 0);
        out.extend_from_slice(number);
        rest = tail;
    }
    rest.is_empty().then_some(out)
}

#[cfg(test)]
mod tests;
