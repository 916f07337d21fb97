//! An issuer that is asked where its keys are, until it answers.

use std::sync::Arc;
use std::time::Duration;

use allot_apimachinery::quote::quote;
use serde::Deserialize;
use tokio::sync::watch;

use super::keys::KeySet;
use super::token::Token;
use super::{claims, fetch, identity};
use crate::config::TokenIssuer;
use crate::identity::User;

/// Between two attempts, as upstream.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
const DOCUMENT: &str = "/.well-known/openid-configuration";

/// An issuer, with its keys as soon as it has said where they are.
pub(super) struct Provider {
    pub(super) issuer: Arc<TokenIssuer>,
    state: watch::Sender<State>,
}

enum State {
    /// Why it cannot be used; empty before the first attempt.
    Waiting(String),
    Ready(Arc<KeySet>),
}

/// What counts of the document of an issuer.
#[derive(Deserialize)]
struct Discovered {
    #[serde(default)]
    issuer: String,
    #[serde(default)]
    jwks_uri: String,
}

impl Provider {
    pub(super) fn new(issuer: Arc<TokenIssuer>) -> Self {
        Provider {
            issuer,
            state: watch::Sender::new(State::Waiting(String::new())),
        }
    }

    /// Asks the issuer until it answers.
    pub(super) async fn start(&self) {
        loop {
            match self.discover().await {
                Ok(keys) => {
                    self.state.send_replace(State::Ready(Arc::new(keys)));
                    return;
                }
                Err(why) => {
                    let issuer = self.issuer.url.as_str();
                    tracing::warn!(issuer, why, "tokens of an issuer cannot be verified yet");
                    self.state.send_replace(State::Waiting(why));
                }
            }
            tokio::time::sleep(AGAIN_AFTER).await;
        }
    }

    async fn discover(&self) -> Result<KeySet, String> {
        let TokenIssuer {
            url,
            discovery_url,
            tls,
            ..
        } = &*self.issuer;
        let document = match discovery_url.as_str() {
            "" => format!("{}{DOCUMENT}", url.strip_suffix('/').unwrap_or(url)),
            at => at.to_owned(),
        };
        let document = fetch::get(tls, &document).await?;
        let found: Discovered = serde_json::from_slice(&document).map_err(|error| {
            format!("oidc: failed to decode provider discovery object: {error}")
        })?;
        if found.issuer != *url {
            return Err(format!(
                "oidc: issuer did not match the issuer returned by provider, expected {} got {}",
                quote(url),
                quote(crate::webhook::excerpt(&found.issuer))
            ));
        }
        if found.jwks_uri.is_empty() {
            return Err("provider did not return JWKS URL".to_owned());
        }
        Ok(KeySet::new(Arc::clone(tls), found.jwks_uri))
    }

    /// Waits until the issuer has answered.
    pub(super) async fn ready(&self) {
        let is_ready = |state: &State| matches!(state, State::Ready(_));
        // The sender is here, so it is not closed.
        let _ = self.state.subscribe().wait_for(is_ready).await;
    }

    /// Why the issuer cannot be used yet.
    pub(super) fn why(&self) -> Option<String> {
        match &*self.state.borrow() {
            State::Waiting(why) => {
                let why = match why.as_str() {
                    "" => "it has not answered",
                    why => why,
                };
                let url = quote(&self.issuer.url);
                Some(format!(
                    "oidc: authenticator for issuer {url} is not healthy: {why}"
                ))
            }
            State::Ready(_) => None,
        }
    }

    /// The identity behind a token that names this issuer.
    ///
    /// # Errors
    /// Upstream's texts.
    pub(super) async fn identity(&self, token: &Token<'_>) -> Result<User, String> {
        let keys = match &*self.state.borrow() {
            State::Ready(keys) => Arc::clone(keys),
            State::Waiting(why) => {
                let before = if why.is_empty() { "" } else { ": " };
                return Err(format!("oidc: authenticator not initialized{before}{why}"));
            }
        };
        let now = jiff::Timestamp::now();
        let verified = async {
            token.check_algorithm(&self.issuer.algorithms)?;
            keys.verify(token).await?;
            claims::check(&self.issuer, &token.claims, now)
        };
        let verified: Result<(), String> = verified.await;
        verified.map_err(|why| format!("oidc: verify token: {why}"))?;
        identity::user(&self.issuer, &token.claims)
    }
}
