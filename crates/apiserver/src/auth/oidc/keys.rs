//! The keys of an issuer. They are fetched when no known one has signed a token: not at the same time twice, and not more
//! often than once a second, as anybody can send tokens that no key has signed.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use rustls::ClientConfig;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::fetch;
use super::metrics::Fetches;
use super::token::Token;
use crate::keys::VerifyingKey;

/// Between the beginnings of two requests for keys.
const INTERVAL: Duration = Duration::from_secs(1);
/// The keys of one issuer: a token without the name of a key may be tried with each.
const MOST_KEYS: usize = 128;
/// Tokens that wait for keys of one issuer; more of them fail at once.
const MOST_WAITING: usize = 128;

type Fetch = Shared<BoxFuture<'static, Result<(), String>>>;

/// The keys at an URL, as far as they are known.
pub(super) struct KeySet {
    tls: Arc<ClientConfig>,
    url: String,
    known: ArcSwap<Vec<PublishedKey>>,
    fetch: Mutex<Option<Fetch>>,
    not_before: Mutex<Instant>,
    waiting: Semaphore,
    /// Counts what is asked for; not for the keys of distributed claims, as upstream.
    fetches: Option<Fetches>,
}

#[derive(Debug)]
struct PublishedKey {
    key: VerifyingKey,
    /// The only algorithm that it is for, if the issuer says so.
    algorithm: Option<String>,
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<Value>,
}

impl KeySet {
    pub(super) fn new(tls: Arc<ClientConfig>, url: String, fetches: Option<Fetches>) -> Self {
        KeySet {
            tls,
            url,
            known: ArcSwap::default(),
            fetch: Mutex::default(),
            not_before: Mutex::new(Instant::now()),
            waiting: Semaphore::new(MOST_WAITING),
            fetches,
        }
    }

    /// Makes sure that one of the keys has signed a token.
    ///
    /// # Errors
    /// None has, or the keys cannot be fetched.
    pub(super) async fn verify(self: &Arc<Self>, token: &Token<'_>) -> Result<(), String> {
        if self.has_signed(token) {
            return Ok(());
        }
        let fetched = self.refresh().await;
        fetched.map_err(|why| format!("failed to verify signature: fetching keys {why}"))?;
        match self.has_signed(token) {
            true => Ok(()),
            false => {
                Err("failed to verify signature: failed to verify id token signature".to_owned())
            }
        }
    }

    fn has_signed(&self, token: &Token<'_>) -> bool {
        let (algorithm, named) = (token.algorithm.as_str(), token.key.as_str());
        self.known.load().iter().any(
            |PublishedKey {
                 key,
                 algorithm: only,
             }| {
                (named.is_empty() || key.id() == named)
                    && only.as_deref().is_none_or(|only| only == algorithm)
                    && key.verifies(algorithm, token.signed.as_bytes(), &token.signature)
            },
        )
    }

    /// Asks for the keys, together with all others that wait for them.
    async fn refresh(self: &Arc<Self>) -> Result<(), String> {
        let Ok(_waiting) = self.waiting.try_acquire() else {
            return Err("too many tokens wait for them".to_owned());
        };
        let fetch = {
            let mut current = self.fetch.lock();
            match &*current {
                Some(fetch) if fetch.peek().is_none() => fetch.clone(),
                _ => current.insert(self.fetch_in_turn()).clone(),
            }
        };
        fetch.await
    }

    /// Apart from the request that needs it, whose client may go away.
    fn fetch_in_turn(self: &Arc<Self>) -> Fetch {
        let keys = Arc::clone(self);
        let task = tokio::spawn(async move {
            let turn = *keys.not_before.lock();
            tokio::time::sleep_until(turn).await;
            *keys.not_before.lock() = Instant::now() + INTERVAL;
            keys.fetch().await
        });
        let ended = |error: tokio::task::JoinError| Err(error.to_string());
        task.map(move |done| done.unwrap_or_else(ended))
            .boxed()
            .shared()
    }

    async fn fetch(&self) -> Result<(), String> {
        let document = fetch::get(&self.tls, &self.url).await;
        let document = document.map_err(|why| format!("oidc: get keys failed {why}"));
        let read = document.and_then(|document| Ok((published(&document)?, document)));
        if let Some(fetches) = &self.fetches {
            fetches.fetched(read.as_ref().ok().map(|(_, document)| &**document));
        }
        self.known.store(Arc::new(read?.0));
        Ok(())
    }
}

/// The keys in a document that can be used: it may have keys of later types, and symmetric keys are ignored.
fn published(document: &[u8]) -> Result<Vec<PublishedKey>, String> {
    let document: Document = serde_json::from_slice(document)
        .map_err(|error| format!("oidc: failed to decode keys: {error}"))?;
    if document.keys.len() > MOST_KEYS {
        return Err(format!("oidc: there are more than {MOST_KEYS} keys"));
    }
    let keys = document.keys.iter().filter_map(|document| {
        let algorithm = match &document["alg"] {
            Value::Null => None,
            Value::String(algorithm) => Some(algorithm.clone()).filter(|it| !it.is_empty()),
            _ => return None,
        };
        let key = VerifyingKey::from_document(document)?;
        Some(PublishedKey { key, algorithm })
    });
    Ok(keys.collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::keys::TokenKey;

    /// Issuers that write each field of a key, also those without a value.
    #[test]
    fn regression_an_algorithm_that_is_empty_is_none() {
        let mut key = TokenKey::generate().unwrap().public().document();
        for (algorithm, expected) in [("", None), ("ES256", Some("ES256"))] {
            key["alg"] = algorithm.into();
            let keys = published(json!({"keys": [key]}).to_string().as_bytes()).unwrap();
            assert_eq!(keys[0].algorithm.as_deref(), expected);
        }
    }

    #[test]
    fn a_document_of_keys_is_bounded_and_has_no_secrets() {
        let key = TokenKey::generate().unwrap().public().document();
        let read = |keys: Value| {
            let read = published(json!({"keys": keys}).to_string().as_bytes());
            read.map(|keys| keys.len())
        };
        let secret = json!({"kty": "oct", "kid": "s", "alg": "HS256", "k": "c2VjcmV0"});
        assert_eq!(read(json!([key, secret, {"kty": "new"}, 7])), Ok(1));
        assert_eq!(read(json!([])), Ok(0));
        let most = vec![key.clone(); MOST_KEYS];
        assert_eq!(read(json!(most)), Ok(MOST_KEYS));
        assert!(read(json!(vec![key; MOST_KEYS + 1])).is_err());
        for wrong in [
            "",
            "{",
            "{}",
            "[]",
            "{\"keys\": {}}",
            &format!("{{\"keys\": {}", "[".repeat(9999)),
        ] {
            assert!(published(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
