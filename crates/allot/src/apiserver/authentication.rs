//! Flags of authentication, with kube-apiserver's names: anonymous requests, issuers of tokens, and a webhook that knows tokens.

mod issuer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use allot_apiserver::ReloadableConfig;
use allot_apiserver::auth::Authenticator;
use allot_apiserver::config::authentication::{self, Anonymous, AuthenticationFile, TokenIssuer};
use allot_apiserver::config::authorization::ReviewVersion;
use allot_apiserver::config::{Kubeconfig, TokenWebhook};
use anyhow::{Context, bail};

use super::flags::{duration, path};
use super::reload::ReloadedFile;

/// Flags of authentication.
#[derive(Debug, clap::Args)]
#[group(id = "authentication")]
pub struct Args {
    /// Requests without credentials are anonymous instead of refused; default true, and false with the authorizer AlwaysAllow
    #[arg(long, value_name = "BOOL")]
    anonymous_auth: Option<bool>,
    /// File that tells whose tokens prove an identity, and for which paths requests may be anonymous (apiserver.config.k8s.io/v1)
    #[arg(long, value_name = "FILE")]
    authentication_config: Option<PathBuf>,
    /// Kubeconfig of a server that authenticates bearer tokens unknown to this one
    #[arg(long, value_name = "FILE")]
    authentication_token_webhook_config_file: Option<PathBuf>,
    /// Version of the TokenReview that the webhook is sent, v1 or v1beta1
    #[arg(long, value_name = "VERSION", default_value = "v1beta1")]
    authentication_token_webhook_version: String,
    /// How long an answer of the webhook is kept
    #[arg(long, value_name = "DURATION", default_value = "2m0s")]
    authentication_token_webhook_cache_ttl: String,
    /// Tokens in secrets of type bootstrap.kubernetes.io/token in the namespace kube-system prove an identity
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true",
        action = clap::ArgAction::Set
    )]
    pub(super) enable_bootstrap_token_auth: bool,
    #[command(flatten)]
    issuer: issuer::Args,
}

/// The authentication of requests, in addition to tokens and certificates of the server itself.
pub struct Authentication {
    /// Which requests may be anonymous.
    pub anonymous: Anonymous,
    /// Whose tokens prove an identity.
    pub issuers: Vec<Arc<TokenIssuer>>,
    /// The file of the configuration, if there is one.
    pub(super) file: Option<ReloadedFile>,
}

impl Args {
    /// The flags with their values, for `/flagz`.
    pub fn shown(&self) -> Vec<(&'static str, String)> {
        let anonymous = self.anonymous_auth.unwrap_or(true);
        let mut shown = vec![
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
        ];
        let bootstrap = self.enable_bootstrap_token_auth.to_string();
        shown.push(("enable-bootstrap-token-auth", bootstrap));
        shown.extend(self.issuer.shown());
        shown
    }

    /// Which requests may be anonymous, and whose tokens count. `all_is_allowed`: `--authorization-mode` names AlwaysAllow; then
    /// no request may be anonymous, as upstream, unless the file says so. `own` are the issuers of service-account tokens.
    ///
    /// # Errors
    /// The file cannot be used, or says the same as flags do; upstream's text for flags that do not go together.
    pub fn authentication(
        &self,
        all_is_allowed: bool,
        own: &[String],
    ) -> anyhow::Result<Authentication> {
        let Some(file) = &self.authentication_config else {
            return Ok(Authentication {
                anonymous: self.anonymous(all_is_allowed),
                issuers: self.issuer.issuers(own)?,
                file: None,
            });
        };
        if self.issuer.is_set() {
            bail!("authentication-config file and oidc-* flags are mutually exclusive");
        }
        let (content, read) = read(file, own)
            .with_context(|| format!("--authentication-config: {}", file.display()))?;
        let AuthenticationFile { anonymous, issuers } = read;
        let initial = ReloadableConfig::Authentication {
            anonymous: anonymous.clone(),
        };
        let followed = ReloadedFile::new("authentication-config", file, content, initial);
        let anonymous = match (anonymous, self.anonymous_auth) {
            (Some(_), Some(_)) => bail!(
                "anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file"
            ),
            (Some(anonymous), None) => anonymous,
            (None, _) => self.anonymous(all_is_allowed),
        };
        Ok(Authentication {
            anonymous,
            issuers,
            file: Some(followed),
        })
    }

    /// The value of the flag for anonymous requests.
    fn anonymous(&self, all_is_allowed: bool) -> Anonymous {
        let wanted = self.anonymous_auth.unwrap_or(true);
        if wanted && all_is_allowed {
            tracing::warn!(
                "anonymous requests are refused: the authorizer AlwaysAllow would allow them everything"
            );
        }
        match wanted && !all_is_allowed {
            true => Anonymous::Everywhere,
            false => Anonymous::Nowhere,
        }
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

fn read(file: &Path, own: &[String]) -> anyhow::Result<(Vec<u8>, AuthenticationFile)> {
    let content = std::fs::read(file)?;
    let read = authentication::read(&content, own).map_err(anyhow::Error::msg)?;
    Ok((content, read))
}

#[cfg(test)]
mod tests;
