//! An issuer whose discovery document is requested until it answers.

use std::sync::Arc;

use allot_apimachinery::quote::quote;
use tokio::sync::watch;

use super::discovery::{AGAIN_AFTER, discover};
use super::distributed::Resolver;
use super::keys::KeySet;
use super::metrics::Metrics;
use super::token::Token;
use super::{claims, identity};
use crate::config::TokenIssuer;
use crate::identity::User;

/// An issuer, with its keys as soon as it has said where they are.
pub(super) struct Provider {
    pub(super) issuer: Arc<TokenIssuer>,
    state: watch::Sender<State>,
    resolver: Resolver,
    metrics: Metrics,
}

enum State {
    /// Why it cannot be used; empty before the first attempt.
    Waiting(String),
    Ready(Arc<KeySet>),
}

impl Provider {
    pub(super) fn new(issuer: Arc<TokenIssuer>, metrics: Metrics) -> Self {
        Provider {
            issuer,
            resolver: Resolver::new(),
            metrics,
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
        let keys = discover(tls, url, discovery_url).await?;
        let fetches = self.metrics.fetches(url);
        Ok(KeySet::new(Arc::clone(tls), keys, Some(fetches)))
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
        let verified = claims::verify(token, &keys, &self.issuer.url, &self.issuer).await;
        verified.map_err(|why| format!("oidc: verify token: {why}"))?;
        let groups = self.resolver.groups(&self.issuer, &token.claims).await;
        let groups =
            groups.map_err(|why| format!("oidc: could not expand distributed claims: {why}"))?;
        match groups {
            None => identity::user(&self.issuer, &token.claims),
            Some((claim, groups)) => {
                let mut claims = token.claims.clone();
                claims.insert(claim.to_owned(), groups);
                identity::user(&self.issuer, &claims)
            }
        }
    }
}
