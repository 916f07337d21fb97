//! Reloading of the files `--authentication-config` and `--authorization-config` while the server runs.

use super::Server;
use crate::config::authorization::file;
use crate::config::{Anonymous, AuthorizationMode, authentication};
use crate::reloads::Reloads;

/// A configuration file that the server reloads, with the part of its initial content that stays the same until a restart.
#[derive(Debug, Clone)]
pub enum ReloadableConfig {
    /// The file of `--authentication-config`.
    Authentication {
        /// The field `anonymous`.
        anonymous: Option<Anonymous>,
    },
    /// The file of `--authorization-config`.
    Authorization {
        /// The authorizers: except for webhooks, their types stay, and policies are not read again.
        authorizers: Vec<AuthorizationMode>,
    },
}

/// Why the changed content of a configuration file is not in use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReloadError {
    /// The content is not valid.
    #[error("{0}")]
    Invalid(String),
    /// An issuer of tokens has not answered. The same content can be used later.
    #[error("{0}")]
    Unhealthy(String),
}

impl Server {
    fn reloads_of(&self, config: &ReloadableConfig) -> &Reloads {
        match config {
            ReloadableConfig::Authentication { .. } => &self.0.metrics.authentication_reloads,
            ReloadableConfig::Authorization { .. } => &self.0.metrics.authorization_reloads,
        }
    }

    /// Reports the initial content of a configuration file in the metrics.
    pub fn loaded(&self, config: &ReloadableConfig, content: &[u8]) {
        self.reloads_of(config).uses("", content);
    }

    /// Counts a reload that failed because the file cannot be read.
    pub fn unreadable(&self, config: &ReloadableConfig) {
        self.reloads_of(config).refused("");
    }

    /// Applies the changed content of a configuration file; requests that are being judged are not affected. Issuers of tokens
    /// are replaced when all new ones have answered.
    ///
    /// # Errors
    /// The content cannot be used; then nothing changes.
    pub async fn reload(
        &self,
        config: &ReloadableConfig,
        content: &[u8],
    ) -> Result<(), ReloadError> {
        let core = &self.0;
        let outcome = match config {
            ReloadableConfig::Authentication { anonymous } => {
                let own = &core.config.account_tokens.issuers;
                match authentication::read_again(content, own, anonymous.as_ref()) {
                    Err(why) => Err(ReloadError::Invalid(why)),
                    Ok(issuers) => {
                        let replaced = core.authenticator.replace_issuers(&issuers).await;
                        replaced.map_err(ReloadError::Unhealthy)
                    }
                }
            }
            ReloadableConfig::Authorization { authorizers } => {
                let modes = file::read_again(content, authorizers);
                let replaced = modes.and_then(|modes| core.authorizer.replace(&modes));
                replaced.map_err(ReloadError::Invalid)
            }
        };
        let reloads = self.reloads_of(config);
        match outcome {
            Ok(()) => reloads.taken("", content),
            Err(_) => reloads.refused(""),
        }
        outcome
    }
}
