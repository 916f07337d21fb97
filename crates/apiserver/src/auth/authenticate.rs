//! Authentication: bearer tokens; TLS has verified client certificates before.

use std::collections::BTreeMap;
use std::sync::Arc;

use allot_apimachinery::Status;
use allot_apimachinery::quote::quote;
use http::HeaderMap;
use serde_json::Value;

use super::bootstrap_token;
use super::credential;
use super::oidc::{self, Issuers};
use super::secret_token;
use super::token::{Bound, LEEWAY, Signer, TokenError};
use super::token_use::{self, TokenUse};
use super::token_webhook::TokenWebhook;
use crate::config::{Anonymous, Config, TokenIssuer};
use crate::error::{ApiError, Result};
use crate::identity::{SERVICE_ACCOUNTS, User};
use crate::object::meta;
use crate::state::ServerState;
use crate::webhook::excerpt;

const EXTRA: &str = "authentication.kubernetes.io/";

/// Proves identities.
pub struct Authenticator {
    tokens: BTreeMap<String, User>,
    anonymous: Anonymous,
    signer: Result<Signer, TokenError>,
    bootstrap_tokens: bool,
    issuers: Issuers,
    webhook: Option<Result<TokenWebhook, String>>,
    uses: token_use::Metrics,
}

/// Why a token proves no identity, for a token review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// What the server itself finds.
    pub own: String,
    /// Why it does not count as a token of the issuer that it names; empty if that is none that the server trusts.
    pub issuer: String,
    /// What the webhook for tokens says; empty if it says nothing.
    pub webhook: String,
}

impl Authenticator {
    /// With the options of the server. Needs a runtime of tokio if there are issuers of tokens.
    pub fn new(config: &Config, metrics: oidc::metrics::Metrics, uses: token_use::Metrics) -> Self {
        Authenticator {
            tokens: config.tokens.clone(),
            anonymous: config.anonymous.clone(),
            signer: Signer::new(&config.account_tokens),
            bootstrap_tokens: config.bootstrap_tokens,
            issuers: Issuers::new(&config.token_issuers, metrics),
            webhook: config.token_webhook.as_ref().map(TokenWebhook::new),
            uses,
        }
    }

    /// The signer of service-account tokens.
    ///
    /// # Errors
    /// 500 if the configured key cannot be used.
    pub fn signer(&self) -> Result<&Signer> {
        self.signer
            .as_ref()
            .map_err(|error| Status::internal(&error.to_string()).into())
    }

    /// The identity of the credentials in the headers of a request for a path. A token in a WebSocket subprotocol is removed from them.
    /// `told` gets what is told about the use of the token, also of a refused one.
    ///
    /// # Errors
    /// 401 for a wrong token, and without any where anonymous requests are not allowed.
    pub(crate) async fn authenticate(
        &self,
        core: &ServerState,
        path: &str,
        headers: &mut HeaderMap,
        told: &mut TokenUse,
    ) -> Result<User> {
        let unauthorized = || ApiError::from(Status::unauthorized("Unauthorized"));
        match credential::bearer(headers).map_err(|_| unauthorized())? {
            Some(token) => {
                let (user, audiences) = self
                    .token(core, &token, &[], told)
                    .await
                    .map_err(|_| unauthorized())?;
                tracing::trace!(user = user.name, ?audiences, "authenticated");
                credential::forget(headers);
                Ok(user)
            }
            None if self.anonymous.may_ask(path) => Ok(User::anonymous()),
            None => Err(unauthorized()),
        }
    }

    /// Whether the webhook that these options describe can be called.
    ///
    /// # Errors
    /// Certificates or keys of its client cannot be used.
    pub fn check(webhook: &crate::config::TokenWebhook) -> Result<(), String> {
        TokenWebhook::new(webhook).map(drop)
    }

    /// Replaces the issuers of tokens; those that are being judged are not affected.
    ///
    /// # Errors
    /// One of them does not answer; then nothing changes.
    pub async fn replace_issuers(&self, issuers: &[Arc<TokenIssuer>]) -> Result<(), String> {
        self.issuers.replace(issuers).await
    }

    /// The identity behind a token and the audiences it is meant for. A webhook authenticates tokens that the server does not know.
    ///
    /// `audiences` are those that the caller accepts; the API server's own if empty.
    ///
    /// # Errors
    /// Texts for a token review.
    pub(crate) async fn token(
        &self,
        core: &ServerState,
        token: &str,
        audiences: &[String],
        told: &mut TokenUse,
    ) -> Result<(User, Vec<String>), Refused> {
        let own = match self.own_token(core, token, audiences, told).await {
            Ok(identity) => return Ok(identity),
            Err(why) => why,
        };
        if let Some(identity) = self.bootstrap_token(core, token, audiences).await {
            return Ok(identity);
        }
        let issuer = match self.issued_token(token, audiences).await {
            Some(Ok(identity)) => return Ok(identity),
            Some(Err(why)) => excerpt(&why).to_owned(),
            None => String::new(),
        };
        let webhook = match (&self.webhook, &self.signer) {
            (None, _) => String::new(),
            (Some(Err(why)), _) => why.clone(),
            (Some(Ok(_)), Err(why)) => why.to_string(),
            (Some(Ok(webhook)), Ok(signer)) => {
                let names = signer.options().audiences();
                let accepted = if audiences.is_empty() {
                    names
                } else {
                    audiences
                };
                match webhook.identity(core, token, accepted, names).await {
                    Ok(identity) => return Ok(identity),
                    Err(why) => why,
                }
            }
        };
        Err(Refused {
            own,
            issuer,
            webhook,
        })
    }

    /// The identity behind a token of one of the issuers. It is for this server: its audience is one of those that the issuer has
    /// for it.
    async fn issued_token(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Option<Result<(User, Vec<String>), String>> {
        let matching = self.matching(audiences)?;
        let identity = self.issuers.identity(token).await?;
        Some(identity.map(|user| (user, matching)))
    }

    /// The identity behind a bootstrap token. It has no audience: it is for this server.
    async fn bootstrap_token(
        &self,
        core: &ServerState,
        token: &str,
        audiences: &[String],
    ) -> Option<(User, Vec<String>)> {
        if !self.bootstrap_tokens {
            return None;
        }
        let matching = self.matching(audiences)?;
        match bootstrap_token::identity(core, token).await {
            Ok(user) => Some((user?, matching)),
            Err(error) => {
                tracing::warn!(?error, "a bootstrap token cannot be checked");
                None
            }
        }
    }

    /// The audiences that this server has of those that the caller accepts, all if it names none; `None` if there are none.
    fn matching(&self, audiences: &[String]) -> Option<Vec<String>> {
        let own = self.signer.as_ref().ok()?.options().audiences();
        let mut matching = own.to_vec();
        if !audiences.is_empty() {
            matching.retain(|it| audiences.contains(it));
        }
        (!matching.is_empty()).then_some(matching)
    }

    async fn own_token(
        &self,
        core: &ServerState,
        token: &str,
        audiences: &[String],
        told: &mut TokenUse,
    ) -> Result<(User, Vec<String>), String> {
        let signer = self.signer.as_ref().map_err(ToString::to_string)?;
        let own = signer.options().audiences();
        let accepted = if audiences.is_empty() { own } else { audiences };
        let shared = |names: &[String]| -> Vec<String> {
            let of_both = accepted.iter().filter(|it| names.contains(it));
            of_both.cloned().collect()
        };
        if let Some(user) = self.tokens.get(token) {
            // Such a token has no audience: it is for this server.
            let matching = shared(own);
            return match matching.is_empty() {
                true => Err(TokenError::Foreign.to_string()),
                false => Ok((user.clone(), matching)),
            };
        }
        let now = jiff::Timestamp::now().as_second();
        let bound = signer
            .verify(token, now)
            .map_err(|error| error.to_string())?;
        // A token without an audience is for this server.
        let meant = match bound.audiences.is_empty() {
            true => own,
            false => &bound.audiences,
        };
        let matching = shared(meant);
        if matching.is_empty() {
            let list = |names: &[String]| {
                let names: Vec<String> = names.iter().map(|name| quote(name)).collect();
                names.join(" ")
            };
            return Err(format!(
                "token audiences [{}] is invalid for the target audiences [{}]",
                list(meant),
                list(accepted)
            ));
        }
        still_there(core, &bound, now).await?;
        secret_token::check(core, &bound, token, (&self.uses, told)).await?;
        if let Some(time) = bound.noted_after {
            let late = now.saturating_sub(time);
            self.uses.mounted(told, &bound.subject(), late);
        }
        Ok((service_account(&bound), matching))
    }
}

/// The identity of a service account.
fn service_account(bound: &Bound) -> User {
    let (_, uid) = &bound.account;
    let mut user = User::new(
        bound.subject(),
        [
            SERVICE_ACCOUNTS.to_owned(),
            format!("{SERVICE_ACCOUNTS}:{}", bound.namespace),
        ],
    );
    user.uid = uid.clone();
    let mut set = |key: &str, value: &str| {
        user.extra
            .insert(format!("{EXTRA}{key}"), vec![value.to_owned()]);
    };
    if !bound.id.is_empty() {
        set("credential-id", &format!("JTI={}", bound.id));
    }
    for (kind, target) in [("pod", &bound.pod), ("node", &bound.node)] {
        if let Some((name, uid)) = target {
            set(&format!("{kind}-name"), name);
            // A pod may be bound to a node that does not exist.
            if !uid.is_empty() {
                set(&format!("{kind}-uid"), uid);
            }
        }
    }
    user
}

/// The account and the object the token is bound to exist, have the same UIDs, and are not being deleted. A finalizer
/// that keeps an object does not keep the tokens that are bound to it.
///
/// # Errors
/// Upstream's text.
async fn still_there(core: &ServerState, bound: &Bound, now: i64) -> Result<(), String> {
    let namespaced = |name: &str| format!("{}/{name}", bound.namespace);
    let (name, uid) = &bound.account;
    let account = stored(core, "serviceaccounts", &namespaced(name)).await?;
    if account.is_null() {
        return Err(format!("serviceaccounts {} not found", quote(name)));
    }
    if meta(&account, "uid") != uid {
        let found = meta(&account, "uid");
        return Err(format!(
            "service account UID ({found}) does not match claim ({uid})"
        ));
    }
    if was_deleted(&account, now) {
        let namespace = &bound.namespace;
        return Err(format!(
            "service account {namespace}/{name} has been deleted"
        ));
    }
    let mut targets = Vec::new();
    if let Some((name, uid)) = &bound.secret {
        targets.push(("secret", "secrets", namespaced(name), uid));
    }
    if let Some((name, uid)) = &bound.pod {
        targets.push(("pod", "pods", namespaced(name), uid));
    }
    // A token for a pod names its node only for information.
    if let (Some((name, uid)), None) = (&bound.node, &bound.pod) {
        targets.push(("node", "nodes", name.clone(), uid));
    }
    for (kind, collection, key, uid) in targets {
        let target = stored(core, collection, &key).await?;
        if target.is_null() || was_deleted(&target, now) && meta(&target, "uid") == uid {
            return Err("service account token has been invalidated".to_owned());
        }
        if meta(&target, "uid") != uid {
            let found = meta(&target, "uid");
            return Err(format!(
                "{kind} UID ({found}) does not match service account {kind} ref claim ({uid})"
            ));
        }
    }
    Ok(())
}

/// What counts of an object, null if it does not exist. This precedes flow control: it must cost little, however large
/// the object is.
async fn stored(core: &ServerState, collection: &str, key: &str) -> Result<Value, String> {
    let paths = ["metadata.uid", "metadata.deletionTimestamp"];
    let found = core.stored_parts(collection, key, &paths).await;
    Ok(found
        .map_err(|error| error.to_string())?
        .unwrap_or_default())
}

/// The deletion time of the object has passed.
fn was_deleted(object: &Value, now: i64) -> bool {
    let deleted = meta(object, "deletionTimestamp");
    let deleted = deleted.parse::<jiff::Timestamp>().ok();
    deleted.is_some_and(|deleted| deleted.as_second() < now.saturating_sub(LEEWAY))
}
