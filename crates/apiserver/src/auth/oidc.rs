//! Authentication by OpenID Connect: JSON web tokens of issuers that the configuration trusts, with upstream's rules.
//!
//! A token counts if it names one of the issuers, has a signature of one of its keys by an algorithm that is allowed, is valid
//! now and for one of the audiences, and if the rules of the issuer hold. Keys come from the issuer; until it has answered once,
//! none of its tokens counts.

mod claims;
mod discovery;
mod distributed;
mod fetch;
mod identity;
mod keys;
pub(crate) mod metrics;
mod provider;
mod token;

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use tokio_util::task::AbortOnDropHandle;

use crate::config::TokenIssuer;
use crate::identity::User;
use metrics::Metrics;
use provider::Provider;
use token::Token;

/// For how long issuers of a changed configuration may keep it waiting.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// The issuers of the configuration, which may change.
pub(super) struct Issuers {
    current: ArcSwap<Set>,
    metrics: Metrics,
}

/// Issuers that are being used. What they do in the background ends with the last use.
struct Set {
    providers: Vec<Arc<Provider>>,
    _starting: Vec<AbortOnDropHandle<()>>,
}

impl Set {
    fn new(issuers: &[Arc<TokenIssuer>], metrics: &Metrics) -> Self {
        let providers = issuers.iter().cloned();
        let providers = providers.map(|issuer| Provider::new(issuer, metrics.clone()));
        let providers: Vec<_> = providers.map(Arc::new).collect();
        let starting = providers.iter().map(|provider| {
            let provider = Arc::clone(provider);
            AbortOnDropHandle::new(tokio::spawn(async move { provider.start().await }))
        });
        Set {
            _starting: starting.collect(),
            providers,
        }
    }
}

impl Issuers {
    /// Begins to ask the issuers, if there are any; that needs a runtime of tokio.
    pub(super) fn new(issuers: &[Arc<TokenIssuer>], metrics: Metrics) -> Self {
        metrics.uses(issuers.iter().map(|issuer| issuer.url.as_str()));
        Issuers {
            current: ArcSwap::from_pointee(Set::new(issuers, &metrics)),
            metrics,
        }
    }

    /// Replaces the issuers as soon as all new ones have answered.
    ///
    /// # Errors
    /// One of them has not; then nothing changes.
    pub(super) async fn replace(&self, issuers: &[Arc<TokenIssuer>]) -> Result<(), String> {
        let set = Set::new(issuers, &self.metrics);
        let all = futures::future::join_all(set.providers.iter().map(|it| it.ready()));
        if tokio::time::timeout(READY_WITHIN, all).await.is_err() {
            let errors: Vec<String> = set.providers.iter().filter_map(|it| it.why()).collect();
            let errors = allot_apimachinery::field::joined(&errors);
            return Err(errors.unwrap_or_else(|| "context deadline exceeded".to_owned()));
        }
        self.metrics
            .uses(issuers.iter().map(|issuer| issuer.url.as_str()));
        self.current.store(Arc::new(set));
        Ok(())
    }

    /// The identity behind a token; none if it is not one of these issuers'.
    ///
    /// # Errors
    /// Upstream's texts for a token that does not count.
    pub(super) async fn identity(&self, token: &str) -> Option<Result<User, String>> {
        let set = self.current.load_full();
        if set.providers.is_empty() {
            return None;
        }
        let token = Token::unverified(token)?;
        let named = token.issuer()?;
        let mut providers = set.providers.iter();
        let provider = providers.find(|it| it.issuer.url == named)?;
        let started = Instant::now();
        let outcome = provider.identity(&token).await;
        let time = started.elapsed();
        self.metrics
            .judged(&provider.issuer.url, outcome.is_ok(), time);
        Some(outcome)
    }
}
