//! Flags about the tokens of service accounts, with kube-apiserver's names.

use std::path::{Path, PathBuf};

use allot_apiserver::config::AccountTokens;
use allot_apiserver::keys::{TokenKey, VerifyingKey};
use allot_apiserver::request::parse_duration;
use anyhow::Context;

use super::flags::{list, path};

/// Issuers, audiences, keys and lives of tokens.
#[derive(Debug, clap::Args)]
#[group(id = "tokens")]
pub struct Args {
    /// Issuer of service account tokens; can be repeated: the first one is in new tokens, all are accepted
    #[arg(
        long,
        value_name = "URL",
        default_value = "https://kubernetes.default.svc"
    )]
    service_account_issuer: Vec<String>,
    /// Names under which this server is an audience of tokens; default the issuers
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    api_audiences: Vec<String>,
    /// File of RSA or ECDSA keys, PEM, whose tokens are accepted; can be repeated; default the key that signs
    #[arg(long, value_name = "FILE")]
    service_account_key_file: Vec<PathBuf>,
    /// File of the RSA or ECDSA key, PEM, that signs tokens; default one that is kept in the data directory
    #[arg(long, value_name = "FILE")]
    service_account_signing_key_file: Option<PathBuf>,
    /// Longest life of a token, between 1 hour and 2^32 seconds; 0s is no limit
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    service_account_max_token_expiration: String,
    /// Tokens that are mounted into pods live for a year
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    service_account_extend_token_expiration: bool,
    /// URL of the keys of tokens in /.well-known/openid-configuration; default at this server
    #[arg(long, value_name = "URL")]
    service_account_jwks_uri: Option<String>,
}

impl Args {
    /// The flags with their values, for `/flagz`.
    pub fn shown(&self) -> [(&'static str, String); 7] {
        let keys = self.service_account_key_file.iter();
        let keys: Vec<String> = keys.map(|file| path(Some(file))).collect();
        [
            ("api-audiences", list(&self.api_audiences)),
            (
                "service-account-extend-token-expiration",
                self.service_account_extend_token_expiration.to_string(),
            ),
            ("service-account-issuer", list(&self.service_account_issuer)),
            (
                "service-account-jwks-uri",
                self.service_account_jwks_uri.clone().unwrap_or_default(),
            ),
            ("service-account-key-file", list(&keys)),
            (
                "service-account-max-token-expiration",
                self.service_account_max_token_expiration.clone(),
            ),
            (
                "service-account-signing-key-file",
                path(self.service_account_signing_key_file.as_deref()),
            ),
        ]
    }

    /// The options; without `--service-account-signing-key-file` the caller chooses the key.
    pub fn tokens(&self) -> anyhow::Result<AccountTokens> {
        let mut keys = Vec::new();
        for file in &self.service_account_key_file {
            let text = std::fs::read(file).with_context(|| unreadable(file))?;
            let found = VerifyingKey::all_from_pem(&text);
            keys.extend(found.map_err(|error| {
                anyhow::anyhow!("error reading public key file {}: {error}", file.display())
            })?);
        }
        let mut signing_key = None;
        if let Some(file) = &self.service_account_signing_key_file {
            let text = std::fs::read(file).with_context(|| unreadable(file))?;
            let key = TokenKey::from_pem(&text).map_err(|error| {
                let file = file.display();
                anyhow::anyhow!(
                    "failed to parse service-account-issuer-key-file: error reading private key file {file}: {error}"
                )
            })?;
            signing_key = Some(key);
        }
        let longest = parse_duration(&self.service_account_max_token_expiration)
            .map_err(|error| anyhow::anyhow!("--service-account-max-token-expiration: {error}"))?;
        let tokens = AccountTokens {
            issuers: self.service_account_issuer.clone(),
            api_audiences: self.api_audiences.clone(),
            key_is_chosen: signing_key.is_some(),
            signing_key,
            keys,
            // A part of a second below the least is too little as well.
            max_seconds: (longest != 0).then(|| longest.div_euclid(1_000_000_000)),
            is_extended: self.service_account_extend_token_expiration,
            keys_uri: self.service_account_jwks_uri.clone(),
        };
        tokens.check().map_err(anyhow::Error::msg)?;
        Ok(tokens)
    }
}

fn unreadable(file: &Path) -> String {
    format!("cannot read {}", file.display())
}
