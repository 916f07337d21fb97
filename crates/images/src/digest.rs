//! Digests of content.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::Digest as _;

/// A text that is not a digest that can be checked.
#[derive(Clone, Debug, thiserror::Error)]
#[error("invalid digest {digest:?}: {reason}")]
pub struct InvalidDigest {
    /// The input.
    pub digest: String,
    /// Upstream's words for the fault.
    pub reason: String,
}

/// `ALGORITHM:HEX` with an algorithm that can be computed here: sha256, sha384 or sha512.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

impl Digest {
    /// Parses a digest.
    ///
    /// # Errors
    ///
    /// [`InvalidDigest`] for an unknown algorithm, or a length or characters that do not match it. Only lower
    /// case is valid, so that equal content has one name.
    pub fn parse(text: &str) -> Result<Self, InvalidDigest> {
        let invalid = |reason: &str| InvalidDigest {
            digest: text.chars().take(200).collect(),
            reason: reason.to_owned(),
        };
        let (algorithm, hex) = text
            .split_once(':')
            .ok_or_else(|| invalid("invalid checksum digest format"))?;
        let length = match algorithm {
            "sha256" => 64,
            "sha384" => 96,
            "sha512" => 128,
            _ => return Err(invalid("unsupported digest algorithm")),
        };
        if hex.len() != length {
            return Err(invalid("invalid checksum digest length"));
        }
        if !hex
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        {
            return Err(invalid("invalid checksum digest format"));
        }
        Ok(Self(text.to_owned()))
    }

    /// The sha256 digest of some bytes.
    pub fn of(content: &[u8]) -> Self {
        let mut hasher = Hasher::sha256();
        hasher.update(content);
        hasher.finish()
    }

    /// The name of the algorithm.
    pub fn algorithm(&self) -> &str {
        self.0.split(':').next().unwrap_or_default()
    }

    /// The value in hexadecimal digits.
    pub fn hex(&self) -> &str {
        self.0.split(':').nth(1).unwrap_or_default()
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The digest as a name of one file: `sha256-HEX`.
    pub fn file_name(&self) -> String {
        self.0.replace(':', "-")
    }

    /// What computes a digest of this one's algorithm.
    pub fn hasher(&self) -> Hasher {
        match self.algorithm() {
            "sha512" => Hasher::Sha512(sha2::Sha512::new()),
            "sha384" => Hasher::Sha384(sha2::Sha384::new()),
            _ => Hasher::sha256(),
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl TryFrom<String> for Digest {
    type Error = InvalidDigest;

    fn try_from(text: String) -> Result<Self, InvalidDigest> {
        Self::parse(&text)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

/// Computes a digest incrementally.
#[derive(Clone)]
pub enum Hasher {
    /// SHA-256, the usual one.
    Sha256(sha2::Sha256),
    /// SHA-384.
    Sha384(sha2::Sha384),
    /// SHA-512.
    Sha512(sha2::Sha512),
}

impl Hasher {
    /// A hasher for the usual algorithm.
    pub fn sha256() -> Self {
        Self::Sha256(sha2::Sha256::new())
    }

    /// Takes the next piece.
    pub fn update(&mut self, content: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(content),
            Self::Sha384(hasher) => hasher.update(content),
            Self::Sha512(hasher) => hasher.update(content),
        }
    }

    /// The digest of all pieces.
    pub fn finish(self) -> Digest {
        match self {
            Self::Sha256(hasher) => Digest(format!("sha256:{}", hex(&hasher.finalize()))),
            Self::Sha384(hasher) => Digest(format!("sha384:{}", hex(&hasher.finalize()))),
            Self::Sha512(hasher) => Digest(format!("sha512:{}", hex(&hasher.finalize()))),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
