//! Keys in the form of RFC 7517, in which issuers publish them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use super::{Kind, VerifyingKey};

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;

impl VerifyingKey {
    /// A public key from its document, with the name that it has there, which may be empty. None for a key of another type or
    /// curve, for a secret, and for one that is malformed or not for signatures.
    pub fn from_document(document: &Value) -> Option<Self> {
        let text = |key: &str| document[key].as_str();
        let number = |key: &str| {
            // As upstream's library, some issuers pad.
            let bytes = URL_SAFE_NO_PAD
                .decode(text(key)?.trim_end_matches('='))
                .ok()?;
            let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
            let number = bytes[zeros..].to_vec();
            (!number.is_empty()).then_some(number)
        };
        let purpose = document.get("use").unwrap_or(&Value::Null);
        if !purpose.is_null() && *purpose != "" && *purpose != "sig" {
            return None;
        }
        let point = |size: usize| {
            // Uncompressed: 0x04, x, y.
            let mut point = vec![4];
            for key in ["x", "y"] {
                let coordinate = number(key)?;
                point.resize(point.len() + size.checked_sub(coordinate.len())?, 0);
                point.extend(coordinate);
            }
            Some(point)
        };
        let (kind, bits) = match (text("kty")?, text("crv")) {
            ("RSA", _) => {
                let (modulus, exponent) = (number("n")?, number("e")?);
                let both = [integer(&modulus), integer(&exponent)].concat();
                let kind = Kind::Rsa { modulus, exponent };
                (kind, element(SEQUENCE, &both))
            }
            ("EC", Some("P-256")) => (Kind::P256, point(32)?),
            ("EC", Some("P-384")) => (Kind::P384, point(48)?),
            _ => return None,
        };
        Some(VerifyingKey {
            id: text("kid").unwrap_or_default().to_owned(),
            kind,
            bits,
        })
    }
}

/// A number without leading zeros in DER.
fn integer(number: &[u8]) -> Vec<u8> {
    match number {
        // It would be a negative one.
        [first, ..] if *first >= 0x80 => element(INTEGER, &[&[0], number].concat()),
        _ => element(INTEGER, number),
    }
}

/// An element of DER.
fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match u8::try_from(content.len()) {
        Ok(length @ ..0x80) => out.push(length),
        _ => {
            let length = content.len().to_be_bytes();
            let zeros = length.iter().take_while(|byte| **byte == 0).count();
            // Eight bytes at most.
            out.push(0x80 | (length.len() - zeros) as u8);
            out.extend(&length[zeros..]);
        }
    }
    out.extend(content);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::keys::TokenKey;

    const RSA: &[u8] = include_bytes!("../../tests/keys/rsa.pem");
    const P384: &[u8] = include_bytes!("../../tests/keys/p384.pem");

    #[test]
    fn a_published_key_verifies_as_the_key_itself() {
        for key in [
            TokenKey::from_pem(RSA).unwrap(),
            TokenKey::from_pem(P384).unwrap(),
            TokenKey::generate().unwrap(),
        ] {
            let read = VerifyingKey::from_document(&key.public().document()).unwrap();
            assert_eq!(&read, key.public());
            let (algorithm, signature) = (read.algorithm(), key.sign(b"text").unwrap());
            assert!(read.verifies(algorithm, b"text", &signature));
            assert!(!read.verifies(algorithm, b"other", &signature));
            assert!(!read.verifies("none", b"text", b""));
        }
    }

    #[test]
    fn what_cannot_be_used_is_no_key() {
        let good = TokenKey::generate().unwrap().public().document();
        let with = |key: &str, value: Value| {
            let mut document = good.clone();
            document[key] = value;
            VerifyingKey::from_document(&document)
        };
        assert!(with("kid", Value::Null).is_some_and(|key| key.id().is_empty()));
        let padded = format!("{}==", good["x"].as_str().unwrap());
        assert_eq!(with("x", padded.into()), VerifyingKey::from_document(&good));
        assert!(with("use", json!("")).is_some());
        for (key, value) in [
            ("use", json!("enc")),
            ("use", json!(1)),
            ("kty", json!("oct")),
            ("kty", Value::Null),
            ("crv", json!("P-521")),
            ("crv", json!("P-384")),
            ("x", json!("")),
            ("x", json!("AA")),
            ("x", json!("!")),
            ("x", json!("A".repeat(100))),
            ("y", json!([1])),
        ] {
            let found = with(key, value.clone());
            // A shorter coordinate is padded; then the point is on no curve.
            let is_refused = found.is_none_or(|key| !key.verifies("ES384", b"", b""));
            assert!(is_refused, "{key}: {value}");
        }
        for secret in [
            json!({"kty": "oct", "k": "c2VjcmV0"}),
            json!({"kty": "RSA", "n": "", "e": "AQAB"}),
            json!({"kty": "OKP", "crv": "Ed25519", "x": "AA"}),
            json!([]),
        ] {
            assert_eq!(VerifyingKey::from_document(&secret), None);
        }
    }
}
