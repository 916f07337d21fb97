//! Flags of authentication, with kube-apiserver's names: anonymous requests, and a webhook that knows tokens.

use std::path::PathBuf;

use allot_apiserver::auth::Authenticator;
use allot_apiserver::config::authentication::{self, Anonymous};
use allot_apiserver::config::authorization::ReviewVersion;
use allot_apiserver::config::{Kubeconfig, TokenWebhook};
use anyhow::{Context, bail};

use super::flags::{duration, path};

/// What proves an identity.
#[derive(Debug, clap::Args)]
#[group(id = "authentication")]
pub struct Args {
    /// Requests without credentials are anonymous instead of refused; default true, and false with the authorizer AlwaysAllow
    #[arg(long, value_name = "BOOL")]
    anonymous_auth: Option<bool>,
    /// File that tells for which paths requests may be anonymous (apiserver.config.k8s.io/v1)
    #[arg(long, value_name = "FILE")]
    authentication_config: Option<PathBuf>,
    /// Kubeconfig of a server that is asked about bearer tokens which this server does not know
    #[arg(long, value_name = "FILE")]
    authentication_token_webhook_config_file: Option<PathBuf>,
    /// Version of the TokenReview that the webhook is sent, v1 or v1beta1
    #[arg(long, value_name = "VERSION", default_value = "v1beta1")]
    authentication_token_webhook_version: String,
    /// How long an answer of the webhook is kept
    #[arg(long, value_name = "DURATION", default_value = "2m0s")]
    authentication_token_webhook_cache_ttl: String,
}

impl Args {
    /// The flags with their values, for `/flagz`.
    pub fn shown(&self) -> [(&'static str, String); 5] {
        let anonymous = self.anonymous_auth.unwrap_or(true);
        [
            ("anonymous-auth", anonymous.to_string()),
            (
                "authentication-config",
                path(self.authentication_config.as_deref()),
            ),
            (
                "authentication-token-webhook-config-file",
                path(self.authentication_token_webhook_config_file.as_deref()),
            ),
            (
                "authentication-token-webhook-version",
                self.authentication_token_webhook_version.clone(),
            ),
            (
                "authentication-token-webhook-cache-ttl",
                self.authentication_token_webhook_cache_ttl.clone(),
            ),
        ]
    }

    /// Which requests may be anonymous. `all_is_allowed`: `--authorization-mode` names AlwaysAllow; then none may be, as upstream,
    /// unless the file says so.
    ///
    /// # Errors
    /// The file cannot be used, or says the same as the flag.
    pub fn anonymous(&self, all_is_allowed: bool) -> anyhow::Result<Anonymous> {
        if let Some(file) = &self.authentication_config {
            let named = || format!("--authentication-config: {}", file.display());
            let content = std::fs::read(file).with_context(named)?;
            let read = authentication::read(&content).map_err(anyhow::Error::msg);
            match (read.with_context(named)?, self.anonymous_auth) {
                (Some(_), Some(_)) => bail!(
                    "anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file"
                ),
                (Some(anonymous), None) => return Ok(anonymous),
                (None, _) => {}
            }
        }
        let wanted = self.anonymous_auth.unwrap_or(true);
        if wanted && all_is_allowed {
            tracing::warn!(
                "anonymous requests are refused: the authorizer AlwaysAllow would allow them everything"
            );
        }
        Ok(match wanted && !all_is_allowed {
            true => Anonymous::Everywhere,
            false => Anonymous::Nowhere,
        })
    }

    /// The webhook, if the flags name one.
    ///
    /// # Errors
    /// Its kubeconfig cannot be used, and kube-apiserver's text for an unknown version.
    pub fn webhook(&self) -> anyhow::Result<Option<TokenWebhook>> {
        let Some(file) = &self.authentication_token_webhook_config_file else {
            return Ok(None);
        };
        let version = &self.authentication_token_webhook_version;
        let version = ReviewVersion::named(version).with_context(|| {
            format!("unsupported authentication webhook version {version:?}, supported versions are \"v1\", \"v1beta1\"")
        })?;
        let kubeconfig = Kubeconfig::read(file).map_err(anyhow::Error::msg);
        let webhook = TokenWebhook {
            kubeconfig: kubeconfig.context("--authentication-token-webhook-config-file")?,
            version,
            ttl: duration(
                "authentication-token-webhook-cache-ttl",
                &self.authentication_token_webhook_cache_ttl,
            )?,
        };
        Authenticator::check(&webhook).map_err(anyhow::Error::msg)?;
        Ok(Some(webhook))
    }
}

#[cfg(test)]
mod tests;
