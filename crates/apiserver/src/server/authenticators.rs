//! Issuers of tokens that change while the server runs.

use super::Server;
use crate::config::Anonymous;
use crate::config::authentication;

impl Server {
    /// Tells which content of `--authentication-config` counts from the start.
    pub fn authenticates_with(&self, content: &[u8]) {
        self.0.metrics.authentication.in_use(content);
    }

    /// Replaces the issuers of tokens by those in the changed file of `--authentication-config`, when all of them have answered.
    /// `first` is what the file has said about anonymous requests when the server started.
    ///
    /// # Errors
    /// Why nothing changes.
    pub async fn authenticate_again(
        &self,
        content: &[u8],
        first: Option<&Anonymous>,
    ) -> Result<(), NotTaken> {
        let core = &self.0;
        let own = &core.config.account_tokens.issuers;
        let outcome = match authentication::read_again(content, own, first) {
            Err(why) => Err(NotTaken::Invalid(why)),
            Ok(issuers) => {
                let replaced = core.authenticator.replace_issuers(&issuers).await;
                replaced.map_err(NotTaken::Unanswered)
            }
        };
        core.metrics.authentication.reloaded(outcome.is_ok());
        if outcome.is_ok() {
            core.metrics.authentication.in_use(content);
        }
        outcome
    }
}

/// Why a changed configuration of authentication does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// It never will.
    #[error("{0}")]
    Invalid(String),
    /// An issuer has not answered.
    #[error("{0}")]
    Unanswered(String),
}
