//! Signed JSON web tokens in their compact form (RFC 7515).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value};

use allot_apimachinery::quote::quote;

/// Google has left the scheme out of the name of its issuer, as OpenID Connect Core 1.0 says in section 15.6.2.
const GOOGLE: (&str, &str) = ("accounts.google.com", "https://accounts.google.com");

/// A token, taken apart. Nothing in it is true until its signature is verified.
pub(super) struct Token<'t> {
    /// What is signed.
    pub(super) signed: &'t str,
    pub(super) signature: Vec<u8>,
    /// Empty if the head has none, or cannot be read.
    pub(super) algorithm: String,
    /// The name of the key; empty if there is none.
    pub(super) key: String,
    pub(super) claims: Map<String, Value>,
    is_malformed: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Head {
    alg: Option<String>,
    kid: Option<String>,
    crit: Option<Value>,
}

impl<'t> Token<'t> {
    /// Takes a text apart; none if it has not the form of a token with claims.
    pub(super) fn unverified(text: &'t str) -> Option<Self> {
        let (signed, signature) = text.rsplit_once('.')?;
        let (head, claims) = signed.split_once('.')?;
        if claims.contains('.') {
            return None;
        }
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
        let claims = serde_json::from_slice(&decode(claims)?).ok()?;
        let head = decode(head).and_then(|head| serde_json::from_slice::<Head>(&head).ok());
        // An extension that has to be understood is one that is not.
        let head = head.filter(|head| head.crit.is_none());
        let signature = decode(signature);
        let is_malformed = head.is_none() || signature.is_none();
        let head = head.unwrap_or_default();
        Some(Token {
            signed,
            signature: signature.unwrap_or_default(),
            algorithm: head.alg.unwrap_or_default(),
            key: head.kid.unwrap_or_default(),
            claims,
            is_malformed,
        })
    }

    /// The issuer that it names.
    pub(super) fn issuer(&self) -> Option<&str> {
        issuer(&self.claims)
    }

    /// Makes sure that the signature can be judged, and is of an algorithm that is allowed.
    ///
    /// # Errors
    /// Upstream's texts.
    pub(super) fn check_algorithm(&self, allowed: &[&'static str]) -> Result<(), String> {
        if self.is_malformed {
            return Err("oidc: malformed jwt".to_owned());
        }
        if allowed.contains(&self.algorithm.as_str()) {
            return Ok(());
        }
        Err(format!(
            "oidc: id token signed with unsupported algorithm, expected {} got {}",
            quoted(allowed),
            quote(&self.algorithm)
        ))
    }
}

/// The issuer that claims name.
pub(super) fn issuer(claims: &Map<String, Value>) -> Option<&str> {
    let issuer = claims.get("iss")?.as_str()?;
    Some(if issuer == GOOGLE.0 { GOOGLE.1 } else { issuer })
}

/// Texts as Go prints a list of them.
pub(super) fn quoted(texts: &[impl AsRef<str>]) -> String {
    let texts: Vec<String> = texts.iter().map(|it| quote(it.as_ref())).collect();
    format!("[{}]", texts.join(" "))
}
