//! Distributed claims (OpenID Connect Core 1.0, section 5.6.2): groups that a token keeps elsewhere. The token names a place,
//! which answers with a token of any issuer for the same audience.
//!
//! A place counts only if an issuer that the administrator trusts has signed its name. What it and the other issuer say is
//! read over HTTPS alone, with certificates of the authorities that vouch for the first issuer, without redirects, and
//! bounded in size and time.

use std::collections::HashMap;
use std::sync::Arc;

use allot_apimachinery::quote::quote;
use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::discovery::{AGAIN_AFTER, discover};
use super::keys::KeySet;
use super::token::Token;
use super::{claims, fetch};
use crate::config::TokenIssuer;
use crate::config::authentication::Mapping;

/// Issuers of tokens with claims, for one issuer of tokens that name them.
const MOST_ISSUERS: usize = 16;
/// Tokens whose claims are asked for at a time; more of them fail at once.
const MOST_ASKING: usize = 64;

/// Asks for the groups of tokens of one issuer.
pub(super) struct Resolver {
    known: Mutex<HashMap<String, Verifier>>,
    asking: Semaphore,
}

/// What is known about another issuer.
enum Verifier {
    Ready(Arc<KeySet>),
    /// It has not answered, and is not asked again before this time.
    Waiting(Instant),
}

/// A place where a claim is kept.
struct Source<'c> {
    endpoint: &'c str,
    access_token: &'c str,
}

impl Resolver {
    pub(super) fn new() -> Self {
        Resolver {
            known: Mutex::default(),
            asking: Semaphore::new(MOST_ASKING),
        }
    }

    /// The claim with the groups, and its value, if a token of the issuer keeps them elsewhere.
    ///
    /// # Errors
    /// Upstream's texts: the claim cannot be fetched.
    pub(super) async fn groups<'i>(
        &self,
        issuer: &'i TokenIssuer,
        found: &Map<String, Value>,
    ) -> Result<Option<(&'i str, Value)>, String> {
        let Some(Mapping::Claim { claim, .. }) = &issuer.groups else {
            return Ok(None);
        };
        let Some(source) = source(claim, found)? else {
            return Ok(None);
        };
        let Ok(_asking) = self.asking.try_acquire() else {
            return Err("too many distributed claims are being asked for".to_owned());
        };
        let value = self.resolve(issuer, claim, &source).await?;
        Ok(Some((claim, value)))
    }

    async fn resolve(
        &self,
        issuer: &TokenIssuer,
        claim: &str,
        source: &Source<'_>,
    ) -> Result<Value, String> {
        let Source {
            endpoint,
            access_token,
        } = source;
        let token = fetch::claims(&issuer.tls, endpoint, access_token).await;
        let token = token
            .map_err(|why| format!("while getting distributed claim {}: {why}", quote(claim)))?;
        let token = String::from_utf8_lossy(&token);
        let untrusted = |why: &str| {
            let claim = quote(claim);
            format!(
                "getting untrusted issuer from endpoint {endpoint} failed for claim {claim}: {why}"
            )
        };
        if token.trim_start().starts_with('{') {
            return Err(untrusted("token is not compact JWT"));
        }
        let token = Token::unverified(&token).ok_or_else(|| untrusted("malformed token"))?;
        let other = token.issuer().unwrap_or_default();
        let keys = self
            .keys(issuer, other)
            .await
            .map_err(|why| format!("verifying untrusted issuer {other} failed: {why}"))?;
        let verified = claims::verify(&token, &keys, other, issuer).await;
        verified.map_err(|why| format!("verify distributed claim token: {why}"))?;
        token.claims.get(claim).cloned().ok_or_else(|| {
            let endpoint = quote(endpoint);
            format!("jwt returned by distributed claim endpoint {endpoint} did not contain claim: {claim}")
        })
    }

    /// The keys of another issuer, which is asked where they are when its first token comes.
    async fn keys(&self, issuer: &TokenIssuer, other: &str) -> Result<Arc<KeySet>, String> {
        let not_ready = || format!("verifier not initialized for issuer: {}", quote(other));
        {
            let mut known = self.known.lock();
            match known.get(other) {
                Some(Verifier::Ready(keys)) => return Ok(Arc::clone(keys)),
                Some(Verifier::Waiting(until)) if Instant::now() < *until => {
                    return Err(not_ready());
                }
                None if known.len() >= MOST_ISSUERS => {
                    return Err(format!("there are more than {MOST_ISSUERS} issuers"));
                }
                _ => {}
            }
            // No other request asks at the same time.
            let until = Instant::now() + AGAIN_AFTER;
            known.insert(other.to_owned(), Verifier::Waiting(until));
        }
        let discovery_url = match other == issuer.url {
            true => issuer.discovery_url.as_str(),
            false => "",
        };
        let keys = discover(&issuer.tls, other, discovery_url).await;
        let keys = keys.map_err(|why| {
            tracing::warn!(
                issuer = other,
                why,
                "distributed claims of an issuer cannot be verified yet"
            );
            not_ready()
        })?;
        let keys = Arc::new(KeySet::new(Arc::clone(&issuer.tls), keys, None));
        let ready = Verifier::Ready(Arc::clone(&keys));
        self.known.lock().insert(other.to_owned(), ready);
        Ok(keys)
    }
}

/// Where a claim is kept; none if the token has it itself, or does not tell of it.
fn source<'c>(claim: &str, found: &'c Map<String, Value>) -> Result<Option<Source<'c>>, String> {
    if found.contains_key(claim) {
        return Ok(None);
    }
    let Some(names) = found.get("_claim_names") else {
        return Ok(None);
    };
    let Some(sources) = found.get("_claim_sources") else {
        return Err("oidc: no claim sources".to_owned());
    };
    let unusable = |why: String| format!("oidc: could not parse claim sources: {why}");
    let sources = match sources {
        Value::Object(sources) => sources,
        Value::Null => return Ok(None),
        other => {
            let wanted = "map[string]oidc.endpoint";
            return Err(unusable(claims::mistyped(other, wanted)));
        }
    };
    let Some(name) = names.get(claim).and_then(Value::as_str) else {
        return Ok(None);
    };
    let Some(source) = sources.get(name) else {
        return Err(format!(
            "id token _claim_names contained a source {name} missing in _claims_sources"
        ));
    };
    let Value::Object(source) = source else {
        return Err(unusable(claims::mistyped(source, "oidc.endpoint")));
    };
    let source = Source {
        endpoint: claims::text(source, "endpoint").map_err(unusable)?,
        access_token: claims::text(source, "access_token").map_err(unusable)?,
    };
    // Without a place it may be an aggregated claim, which upstream does not read.
    Ok((!source.endpoint.is_empty()).then_some(source))
}
