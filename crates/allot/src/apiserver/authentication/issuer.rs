//! The flags `--oidc-*`: one issuer of tokens.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use allot_apiserver::config::TokenIssuer;
use allot_apiserver::config::authentication::IssuerFlags;
use anyhow::{Context, bail};

use crate::apiserver::flags::{list, path};

/// Flags about an issuer of OpenID Connect.
#[derive(Debug, clap::Args)]
#[group(id = "oidc")]
pub(super) struct Args {
    /// URL of an issuer of OpenID Connect whose tokens prove an identity; https alone
    #[arg(long, value_name = "URL")]
    oidc_issuer_url: Option<String>,
    /// Audience that the tokens of --oidc-issuer-url are for
    #[arg(long, value_name = "ID")]
    oidc_client_id: Option<String>,
    /// CA certificates, PEM, that verify the server of --oidc-issuer-url; default those of the system
    #[arg(long, value_name = "FILE")]
    oidc_ca_file: Option<PathBuf>,
    /// Claim with the name of the user; default sub
    #[arg(long, value_name = "CLAIM")]
    oidc_username_claim: Option<String>,
    /// Text before the name of the user; default the URL of the issuer and #, for the claim email none; `-`: none
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    oidc_username_prefix: Option<String>,
    /// Claim with the groups of the user
    #[arg(long, value_name = "CLAIM")]
    oidc_groups_claim: Option<String>,
    /// Text before each group
    #[arg(long, value_name = "TEXT")]
    oidc_groups_prefix: Option<String>,
    /// Claim that a token must have, with its value; repeatable
    #[arg(long, value_name = "CLAIM=VALUE")]
    oidc_required_claim: Vec<String>,
    /// Algorithms of signatures that count: RS256 (the default), RS384, RS512, ES256, ES384, PS256, PS384, PS512
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    oidc_signing_algs: Vec<String>,
}

impl Args {
    /// Whether one of the flags is given.
    pub(super) fn is_set(&self) -> bool {
        let texts = [
            &self.oidc_issuer_url,
            &self.oidc_client_id,
            &self.oidc_username_claim,
            &self.oidc_username_prefix,
            &self.oidc_groups_claim,
            &self.oidc_groups_prefix,
        ];
        texts.iter().any(|it| it.is_some())
            || self.oidc_ca_file.is_some()
            || !self.oidc_required_claim.is_empty()
            || !self.oidc_signing_algs.is_empty()
    }

    /// The issuer, if the flags describe one. `own` are the issuers of service-account tokens.
    ///
    /// # Errors
    /// Upstream's texts.
    pub(super) fn issuers(&self, own: &[String]) -> anyhow::Result<Vec<Arc<TokenIssuer>>> {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let (url, client_id) = (text(&self.oidc_issuer_url), text(&self.oidc_client_id));
        if url.is_empty() || client_id.is_empty() {
            if self.is_set() {
                bail!(
                    "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set"
                );
            }
            return Ok(Vec::new());
        }
        let ca = match &self.oidc_ca_file {
            None => String::new(),
            Some(file) => {
                let named = || format!("--oidc-ca-file: {}", file.display());
                let ca = std::fs::read_to_string(file).with_context(named)?;
                if ca.trim().is_empty() {
                    bail!("{}: there are no certificates", named());
                }
                ca
            }
        };
        let flags = IssuerFlags {
            url,
            client_id,
            ca,
            username_claim: self.username_claim().to_owned(),
            username_prefix: text(&self.oidc_username_prefix),
            groups_claim: text(&self.oidc_groups_claim),
            groups_prefix: text(&self.oidc_groups_prefix),
            required: self.required()?,
            algorithms: self.oidc_signing_algs.clone(),
        };
        flags.issuer(own).map_err(anyhow::Error::msg)
    }

    fn username_claim(&self) -> &str {
        self.oidc_username_claim.as_deref().unwrap_or("sub")
    }

    fn required(&self) -> anyhow::Result<BTreeMap<String, String>> {
        let pairs = self.oidc_required_claim.iter().map(|pair| {
            let parts = pair.split_once('=');
            let parts = parts.map(|(claim, value)| (claim.trim(), value.trim()));
            let (claim, value) = parts.with_context(|| {
                format!("--oidc-required-claim: malformed pair, expect string=string: {pair:?}")
            })?;
            Ok((claim.to_owned(), value.to_owned()))
        });
        pairs.collect()
    }

    /// The flags with their values, for `/flagz`.
    pub(super) fn shown(&self) -> Vec<(&'static str, String)> {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let algorithms = match &self.oidc_signing_algs[..] {
            [] => "[RS256]".to_owned(),
            algorithms => list(algorithms),
        };
        vec![
            ("oidc-issuer-url", text(&self.oidc_issuer_url)),
            ("oidc-client-id", text(&self.oidc_client_id)),
            ("oidc-ca-file", path(self.oidc_ca_file.as_deref())),
            ("oidc-username-claim", self.username_claim().to_owned()),
            ("oidc-username-prefix", text(&self.oidc_username_prefix)),
            ("oidc-groups-claim", text(&self.oidc_groups_claim)),
            ("oidc-groups-prefix", text(&self.oidc_groups_prefix)),
            ("oidc-required-claim", self.oidc_required_claim.join(",")),
            ("oidc-signing-algs", algorithms),
        ]
    }
}
