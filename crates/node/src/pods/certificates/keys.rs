//! Private keys of pod certificates, and the requests that prove their possession.

use allot_apimachinery::pem;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RsaKeyPair};

/// A key of a type that upstream knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Rsa(usize),
    P256,
    P384,
    P521,
    Ed25519,
}

impl Kind {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "RSA3072" => Self::Rsa(3072),
            "RSA4096" => Self::Rsa(4096),
            "ECDSAP256" => Self::P256,
            "ECDSAP384" => Self::P384,
            "ECDSAP521" => Self::P521,
            "ED25519" => Self::Ed25519,
            _ => return None,
        })
    }
}

/// Why there is no key.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum KeyError {
    /// The API server admits no such pod.
    #[error("while generating keypair: unknown key type {0:?}")]
    Unknown(String),
    /// The system gives no random numbers, or a library made no valid key of them.
    #[error("while generating keypair: {0}")]
    Failed(&'static str),
}

/// A private key in PEM. It is shown nowhere.
pub(super) struct Secret(Vec<u8>);

impl Secret {
    fn new(der: &[u8]) -> Self {
        Self(pem::encode("PRIVATE KEY", der).into_bytes())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A key, and a request with its signature (PKCS#10), in which nothing else is stated.
#[derive(Debug)]
pub(super) struct Generated {
    pub(super) key: Secret,
    pub(super) request: Vec<u8>,
}

/// Generates a key of the type that a pod names. An RSA key takes seconds.
pub(super) fn generate(key_type: &str) -> Result<Generated, KeyError> {
    let kind = Kind::of(key_type).ok_or_else(|| KeyError::Unknown(key_type.to_owned()))?;
    let random = SystemRandom::new();
    match kind {
        Kind::Rsa(bits) => of_rsa(bits, &random),
        Kind::P256 | Kind::P384 => of_ecdsa(kind, &random),
        Kind::P521 => of_p521(&random),
        Kind::Ed25519 => of_ed25519(&random),
    }
}

const NO_RANDOM: KeyError = KeyError::Failed("the system gives no random numbers");
const NO_KEY: KeyError = KeyError::Failed("the library refuses its own key");

fn of_rsa(bits: usize, random: &SystemRandom) -> Result<Generated, KeyError> {
    use rsa::pkcs8::EncodePrivateKey as _;
    let key = rsa::PrivateKey::new(&mut Source(random), bits).map_err(|_| NO_KEY)?;
    let der = key.to_pkcs8_der().map_err(|_| NO_KEY)?;
    let key = RsaKeyPair::from_pkcs8(der.as_bytes()).map_err(|_| NO_KEY)?;
    let request = request(
        der::RSA,
        key.public_key().as_ref(),
        der::RSA_SHA256,
        |message| {
            let mut signature = vec![0; key.public().modulus_len()];
            let signed = key.sign(
                &signature::RSA_PKCS1_SHA256,
                random,
                message,
                &mut signature,
            );
            signed.map_err(|_| NO_RANDOM)?;
            Ok(signature)
        },
    )?;
    Ok(Generated {
        key: Secret::new(der.as_bytes()),
        request,
    })
}

fn of_ecdsa(kind: Kind, random: &SystemRandom) -> Result<Generated, KeyError> {
    let (algorithm, curve, signed_by) = match kind {
        Kind::P256 => (
            &signature::ECDSA_P256_SHA256_ASN1_SIGNING,
            der::P256,
            der::ECDSA_SHA256,
        ),
        _ => (
            &signature::ECDSA_P384_SHA384_ASN1_SIGNING,
            der::P384,
            der::ECDSA_SHA384,
        ),
    };
    let der = EcdsaKeyPair::generate_pkcs8(algorithm, random).map_err(|_| NO_RANDOM)?;
    let key = EcdsaKeyPair::from_pkcs8(algorithm, der.as_ref(), random).map_err(|_| NO_KEY)?;
    let request = request(curve, key.public_key().as_ref(), signed_by, |message| {
        let signature = key.sign(random, message).map_err(|_| NO_RANDOM)?;
        Ok(signature.as_ref().to_vec())
    })?;
    Ok(Generated {
        key: Secret::new(der.as_ref()),
        request,
    })
}

fn of_p521(random: &SystemRandom) -> Result<Generated, KeyError> {
    use p521::ecdsa::signature::Signer as _;
    use p521::pkcs8::EncodePrivateKey as _;
    // 521 bits; nearly all such numbers are below the order of the curve.
    let mut number = [0; 66];
    let key = loop {
        random.fill(&mut number).map_err(|_| NO_RANDOM)?;
        number[0] &= 1;
        if let Ok(key) = p521::SecretKey::from_slice(&number) {
            break key;
        }
    };
    let der = key.to_pkcs8_der().map_err(|_| NO_KEY)?;
    let key = p521::ecdsa::SigningKey::from_slice(&number).map_err(|_| NO_KEY)?;
    number.fill(0);
    let public = key.verifying_key().to_sec1_point(false);
    let request = request(der::P521, public.as_bytes(), der::ECDSA_SHA512, |message| {
        let signature: p521::ecdsa::Signature = key.sign(message);
        Ok(signature.to_der().as_bytes().to_vec())
    })?;
    Ok(Generated {
        key: Secret::new(der.as_bytes()),
        request,
    })
}

fn of_ed25519(random: &SystemRandom) -> Result<Generated, KeyError> {
    let mut seed = [0; 32];
    random.fill(&mut seed).map_err(|_| NO_RANDOM)?;
    let key = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| NO_KEY)?;
    // Of the first version, without the public key: others are not read by all libraries.
    let version = der::element(der::INTEGER, &[&[0]]);
    let inner = der::element(der::OCTETS, &[&seed]);
    let inner = der::element(der::OCTETS, &[&inner]);
    let secret = der::element(der::SEQUENCE, &[&version, der::ED25519, &inner]);
    seed.fill(0);
    let request = request(
        der::ED25519,
        key.public_key().as_ref(),
        der::ED25519,
        |message| Ok(key.sign(message).as_ref().to_vec()),
    )?;
    Ok(Generated {
        key: Secret::new(&secret),
        request,
    })
}

/// A PKCS#10 request without a subject and attributes, of a public key of an algorithm, signed by another one.
fn request(
    algorithm: &[u8],
    public: &[u8],
    signed_by: &[u8],
    sign: impl FnOnce(&[u8]) -> Result<Vec<u8>, KeyError>,
) -> Result<Vec<u8>, KeyError> {
    let version = der::element(der::INTEGER, &[&[0]]);
    let subject = der::element(der::SEQUENCE, &[]);
    let key = der::element(der::BITS, &[&[0], public]);
    let key = der::element(der::SEQUENCE, &[algorithm, &key]);
    let attributes = der::element(der::ATTRIBUTES, &[]);
    let info = der::element(der::SEQUENCE, &[&version, &subject, &key, &attributes]);
    let signature = sign(&info)?;
    let signature = der::element(der::BITS, &[&[0], &signature]);
    Ok(der::element(der::SEQUENCE, &[&info, signed_by, &signature]))
}

/// Random numbers for the generation of RSA keys.
struct Source<'a>(&'a SystemRandom);

impl rsa::rand_core::TryRng for Source<'_> {
    type Error = std::io::Error;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        let mut bytes = [0; 4];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        let mut bytes = [0; 8];
        self.try_fill_bytes(&mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
        let filled = self.0.fill(bytes);
        filled.map_err(|_| std::io::Error::other(NO_RANDOM))
    }
}

impl rsa::rand_core::TryCryptoRng for Source<'_> {}

/// Elements of DER, and the identifiers of algorithms in it.
mod der {
    pub(super) const INTEGER: u8 = 0x02;
    pub(super) const BITS: u8 = 0x03;
    pub(super) const OCTETS: u8 = 0x04;
    pub(super) const SEQUENCE: u8 = 0x30;
    pub(super) const ATTRIBUTES: u8 = 0xa0;

    pub(super) const RSA: &[u8] = b"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00";
    pub(super) const RSA_SHA256: &[u8] =
        b"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b\x05\x00";
    pub(super) const P256: &[u8] =
        b"\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07";
    pub(super) const P384: &[u8] =
        b"\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x22";
    pub(super) const P521: &[u8] =
        b"\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x23";
    pub(super) const ECDSA_SHA256: &[u8] = b"\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02";
    pub(super) const ECDSA_SHA384: &[u8] = b"\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x03";
    pub(super) const ECDSA_SHA512: &[u8] = b"\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x04";
    pub(super) const ED25519: &[u8] = b"\x30\x05\x06\x03\x2b\x65\x70";

    /// An element with a tag and its content.
    pub(super) fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        let mut all = vec![tag];
        if length < 0x80 {
            all.push(length as u8);
        } else {
            let bytes = length.to_be_bytes();
            let bytes: Vec<u8> = bytes.into_iter().skip_while(|byte| *byte == 0).collect();
            all.push(0x80 | bytes.len() as u8);
            all.extend(bytes);
        }
        parts.iter().for_each(|part| all.extend_from_slice(part));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The signature in a request is that of the key in it. The API server's tests are about those of OpenSSL.
    #[test]
    fn keys_of_all_types_sign_their_requests() {
        for (key_type, length) in [
            ("ECDSAP256", 32),
            ("ECDSAP384", 48),
            ("ECDSAP521", 66),
            ("ED25519", 32),
            ("RSA3072", 3072 / 8),
        ] {
            let made = generate(key_type).expect("a key");
            let (parsed, rest) = Request::of(&made.request);
            assert!(rest.is_empty(), "{key_type}");
            assert!(parsed.is_signed(), "{key_type}");
            assert!(parsed.public.len() >= length, "{key_type}");
            let text = std::str::from_utf8(made.key.bytes()).expect("PEM");
            assert!(text.starts_with("-----BEGIN PRIVATE KEY-----\n"));
            let shown = format!("{made:?}");
            assert!(shown.contains("key: Secret(..)"), "{shown}");
            let again = generate(key_type).expect("a key");
            assert_ne!(made.key.bytes(), again.key.bytes());
        }
        let unknown = generate("RSA1024").expect_err("too weak").to_string();
        assert_eq!(
            unknown,
            "while generating keypair: unknown key type \"RSA1024\""
        );
    }

    /// What is signed, the public key, the algorithm of the signature, and the signature.
    struct Request<'a> {
        info: &'a [u8],
        algorithm: &'a [u8],
        public: &'a [u8],
        signed_by: &'a [u8],
        signature: &'a [u8],
    }

    /// The first element, its content, and what follows.
    fn split(all: &[u8]) -> (&[u8], &[u8], &[u8]) {
        let (head, length) = match all[1] {
            short if short < 0x80 => (2, usize::from(short)),
            long => {
                let bytes = usize::from(long & 0x7f);
                let length = all[2..2 + bytes].iter();
                let length = length.fold(0, |sum, byte| sum << 8 | usize::from(*byte));
                (2 + bytes, length)
            }
        };
        let (element, rest) = all.split_at(head + length);
        (element, &element[head..], rest)
    }

    impl<'a> Request<'a> {
        fn of(all: &'a [u8]) -> (Self, &'a [u8]) {
            let (_, content, rest) = split(all);
            let (info, inner, content) = split(content);
            let (signed_by, _, content) = split(content);
            let (_, signature, _) = split(content);
            let (_, _, inner) = split(inner);
            let (_, _, inner) = split(inner);
            let (_, key, _) = split(inner);
            let (algorithm, _, key) = split(key);
            let (_, public, _) = split(key);
            let (public, signature) = (&public[1..], &signature[1..]);
            let this = Self {
                info,
                algorithm,
                public,
                signed_by,
                signature,
            };
            (this, rest)
        }

        fn is_signed(&self) -> bool {
            use p521::ecdsa::signature::Verifier as _;
            if (self.algorithm, self.signed_by) == (der::P521, der::ECDSA_SHA512) {
                let key = p521::ecdsa::VerifyingKey::from_sec1_bytes(self.public).expect("a key");
                let signature = p521::ecdsa::Signature::from_der(self.signature).expect("one");
                return key.verify(self.info, &signature).is_ok();
            }
            let by: &dyn signature::VerificationAlgorithm = match self.algorithm {
                der::P256 => &signature::ECDSA_P256_SHA256_ASN1,
                der::P384 => &signature::ECDSA_P384_SHA384_ASN1,
                der::ED25519 => &signature::ED25519,
                _ => &signature::RSA_PKCS1_2048_8192_SHA256,
            };
            let key = signature::UnparsedPublicKey::new(by, self.public);
            key.verify(self.info, self.signature).is_ok()
        }
    }
}
