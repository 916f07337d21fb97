//! Options about the tokens of service accounts.

use crate::keys::{TokenKey, VerifyingKey};

/// Longest and shortest life that can be set as the longest one, in seconds.
const MAX_SECONDS: i64 = 1 << 32;
const HOUR: i64 = 3600;

/// What tokens are made and accepted.
#[derive(Debug, Clone)]
pub struct AccountTokens {
    /// The names of the issuer: the first one is in new tokens, all are accepted.
    pub issuers: Vec<String>,
    /// The names under which this server is an audience; the issuers if there are none.
    pub api_audiences: Vec<String>,
    /// The key that signs; generated at start if absent.
    pub signing_key: Option<TokenKey>,
    /// The administrator has chosen the signing key: then it is accepted only if it is one of `keys`.
    pub key_is_chosen: bool,
    /// The keys whose tokens are accepted; that of the signing key if there are none.
    pub keys: Vec<VerifyingKey>,
    /// Longest life of a token in seconds.
    pub max_seconds: Option<i64>,
    /// Tokens that are mounted into pods live longer than requested, and their late use is noted.
    pub is_extended: bool,
    /// Where relying parties find the keys, if not at this server.
    pub keys_uri: Option<String>,
}

impl Default for AccountTokens {
    fn default() -> Self {
        AccountTokens {
            issuers: vec!["https://kubernetes.default.svc".to_owned()],
            api_audiences: Vec::new(),
            signing_key: None,
            key_is_chosen: false,
            keys: Vec::new(),
            max_seconds: None,
            is_extended: true,
            keys_uri: None,
        }
    }
}

impl AccountTokens {
    /// The issuer of new tokens.
    pub fn issuer(&self) -> &str {
        self.issuers.first().map_or("", String::as_str)
    }

    /// The names of this server as an audience.
    pub fn audiences(&self) -> &[String] {
        match self.api_audiences.is_empty() {
            true => &self.issuers,
            false => &self.api_audiences,
        }
    }

    /// Checks names and limits as kube-apiserver does at its start.
    ///
    /// # Errors
    /// Its text.
    pub fn check(&self) -> Result<(), String> {
        let mut seen = Vec::new();
        for issuer in &self.issuers {
            if issuer.is_empty() {
                return Err("service-account-issuer should not be an empty string".to_owned());
            }
            if issuer.contains(':')
                && let Err(error) = allot_apimachinery::webhook::parses(issuer)
            {
                return Err(format!(
                    "service-account-issuer {issuer:?} contained a ':' but was not a valid URL: {error}"
                ));
            }
            if seen.contains(&issuer) {
                return Err(format!(
                    "service-account-issuer {issuer:?} is already specified"
                ));
            }
            seen.push(issuer);
        }
        if seen.is_empty() {
            return Err("service-account-issuer is a required flag".to_owned());
        }
        if let Some(uri) = &self.keys_uri
            && !uri.starts_with("https://")
        {
            return Err(format!(
                "service-account-jwks-uri requires https scheme, parsed as: {uri}"
            ));
        }
        match self.max_seconds {
            Some(seconds) if !(HOUR..=MAX_SECONDS).contains(&seconds) => Err(
                "the service-account-max-token-expiration must be between 1 hour and 2^32 seconds"
                    .to_owned(),
            ),
            _ => Ok(()),
        }
    }
}
