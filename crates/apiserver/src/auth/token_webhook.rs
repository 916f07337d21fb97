//! Authentication by another server, which is sent a TokenReview.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;

use super::answer_cache::{self, AnswerCache};
use crate::config::TokenWebhook as Options;
use crate::identity::{ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User};
use crate::state::ServerState;
use crate::webhook::{Reviewer, excerpt};

const GROUP: &str = "authentication.k8s.io";
/// The time of one call, as upstream.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Calls at the same time. Any client can send tokens, and flow control does not hold them up.
const MOST_CALLS: usize = 128;
/// The size of an identity, in bytes. Larger ones would not fit into headers for extension API servers.
pub(super) const LARGEST: usize = 64 << 10;
/// Larger ones are requested each time: thousands are kept.
const LARGEST_KEPT: usize = 8 << 10;

/// A webhook that knows tokens.
pub(super) struct TokenWebhook {
    options: Options,
    reviewer: Reviewer,
    salt: [u8; 32],
    calls: Semaphore,
    /// Identities and the audiences of their tokens; none: the webhook does not know the token.
    cache: AnswerCache<Answer>,
}

type Answer = Result<(User, Vec<String>), String>;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    authenticated: Option<bool>,
    user: Option<Map<String, Value>>,
    audiences: Option<Vec<String>>,
    error: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Told {
    username: Option<String>,
    uid: Option<String>,
    groups: Option<Vec<String>>,
    extra: Option<BTreeMap<String, Option<Vec<String>>>>,
}

impl TokenWebhook {
    /// A webhook that has not been called.
    ///
    /// # Errors
    /// Certificates or keys of its client cannot be used.
    pub(super) fn new(options: &Options) -> Result<Self, String> {
        Ok(TokenWebhook {
            reviewer: Reviewer::new(&options.kubeconfig, TIMEOUT)?,
            options: options.clone(),
            salt: rand::random(),
            calls: Semaphore::new(MOST_CALLS),
            cache: AnswerCache::new(),
        })
    }

    /// The identity behind a token, and for which of the `wanted` audiences it is. A token without an audience is for this server,
    /// whose names are `own`.
    ///
    /// # Errors
    /// The error in a token review; empty if the webhook gives no reason.
    pub(super) async fn identity(
        &self,
        core: &ServerState,
        token: &str,
        wanted: &[String],
        own: &[String],
    ) -> Answer {
        let parts = std::iter::once(token).chain(wanted.iter().map(String::as_str));
        let key = answer_cache::key(&self.salt, parts.map(str::as_bytes));
        if let Some(answer) = self.cache.get(&key) {
            return answer;
        }
        let status = self.ask(core, token, wanted).await.inspect_err(|why| {
            let why = excerpt(why);
            tracing::warn!(why, "the authentication webhook could not be asked");
        })?;
        let error = status.error.clone().unwrap_or_default();
        let answer = identity_of(status, wanted, own);
        // As upstream, what a webhook could not find out is not kept.
        let is_cacheable = match &answer {
            Ok((user, _)) => size(user) <= LARGEST_KEPT,
            Err(_) => error.is_empty(),
        };
        if is_cacheable {
            self.cache.insert(key, answer.clone(), self.options.ttl);
        }
        answer
    }

    async fn ask(
        &self,
        core: &ServerState,
        token: &str,
        wanted: &[String],
    ) -> Result<Status, String> {
        let version = format!("{GROUP}/{}", self.options.version.name());
        let mut spec = json!({"token": token});
        if !wanted.is_empty() {
            spec["audiences"] = wanted.into();
        }
        let review = json!({
            "kind": "TokenReview", "apiVersion": version, "metadata": {}, "spec": spec,
            "status": {"user": {}},
        });
        let ask = async {
            // The semaphore is never closed.
            let _turn = self.calls.acquire().await;
            self.reviewer.review(&*core.backend, &review).await
        };
        let limit = crate::limits::for_call(TIMEOUT * 2);
        match tokio::time::timeout(limit, ask).await {
            Ok(status) => status.map_err(|error| error.text),
            Err(_) => Err("context deadline exceeded".to_owned()),
        }
    }
}

/// The identity in the answer of a webhook.
fn identity_of(status: Status, wanted: &[String], own: &[String]) -> Answer {
    let told = status.audiences.unwrap_or_default();
    let meant = if told.is_empty() { own } else { &told };
    let wanted = wanted.iter().filter(|it| meant.contains(it));
    let matching: Vec<String> = wanted.cloned().collect();
    if matching.is_empty() {
        return Err(String::new());
    }
    if !status.authenticated.unwrap_or_default() {
        let error = status.error.unwrap_or_default();
        return Err(excerpt(&error).to_owned());
    }
    // Not the type at once: that would also be read out of a list.
    let told = serde_json::from_value(status.user.unwrap_or_default().into());
    let told: Told = told.map_err(|error| format!("json parse error: {error}"))?;
    let Told {
        username,
        uid,
        groups,
        extra,
    } = told;
    let extra = extra.unwrap_or_default().into_iter();
    let mut user = User {
        name: username.unwrap_or_default(),
        uid: uid.unwrap_or_default(),
        groups: groups.unwrap_or_default(),
        extra: extra
            .map(|(key, list)| (key, list.unwrap_or_default()))
            .collect(),
    };
    if user.name.is_empty() {
        return Err("the webhook has named no user".to_owned());
    }
    if size(&user) > LARGEST {
        return Err("the webhook has named a user with too many attributes".to_owned());
    }
    if user.name != ANONYMOUS && !user.in_group(UNAUTHENTICATED) {
        user.add_group(AUTHENTICATED);
    }
    Ok((user, matching))
}

/// The memory of an identity.
pub(super) fn size(user: &User) -> usize {
    /// Of a text without its bytes.
    const TEXT: usize = 32;
    let of = |list: &[String]| list.iter().map(|it| it.len() + TEXT).sum::<usize>();
    let extra = user.extra.iter();
    let extra: usize = extra.map(|(key, list)| key.len() + TEXT + of(list)).sum();
    user.name.len() + user.uid.len() + of(&user.groups) + extra
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: &Value, wanted: &[&str]) -> Answer {
        let status = serde_json::from_value(status.clone()).unwrap();
        let owned = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
        identity_of(status, &owned(wanted), &owned(&["api", "api2"]))
    }

    #[test]
    fn audiences_restrict_for_whom_a_token_is() {
        let ann = |audiences: Value| json!({"authenticated": true, "user": {"username": "ann"}, "audiences": audiences});
        let audiences = |told: Value, wanted: &[&str]| answer(&ann(told), wanted).map(|it| it.1);
        let list = |list: &[&str]| Ok(list.iter().map(ToString::to_string).collect::<Vec<_>>());
        let unknown = Err(String::new());
        assert_eq!(audiences(json!(null), &["api"]), list(&["api"]));
        assert_eq!(audiences(json!([]), &["other", "api2"]), list(&["api2"]));
        assert_eq!(audiences(json!(null), &["other"]), unknown);
        assert_eq!(audiences(json!(["other"]), &["other"]), list(&["other"]));
        assert_eq!(audiences(json!(["other"]), &["api"]), unknown);
        assert_eq!(
            audiences(json!(["api", "x"]), &["api", "y"]),
            list(&["api"])
        );
    }

    #[test]
    fn only_what_is_authenticated_is_an_identity() {
        let user = json!({"username": "ann", "groups": ["system:masters"]});
        for (status, error) in [
            (json!({"user": user}), ""),
            (json!({"authenticated": null, "user": user}), ""),
            (
                json!({"authenticated": false, "user": user, "error": "expired"}),
                "expired",
            ),
            (
                json!({"authenticated": true}),
                "the webhook has named no user",
            ),
            (
                json!({"authenticated": true, "user": {"username": ""}}),
                "the webhook has named no user",
            ),
        ] {
            assert_eq!(answer(&status, &["api"]), Err(error.to_owned()), "{status}");
        }
        let (user, _) = answer(&json!({"authenticated": true, "user": user}), &["api"]).unwrap();
        assert_eq!(user.groups, ["system:masters", AUTHENTICATED]);
        let nameless = json!({"authenticated": true, "user": {"username": ANONYMOUS}});
        let (user, _) = answer(&nameless, &["api"]).unwrap();
        assert_eq!(user.groups, [""; 0]);
    }

    #[test]
    fn an_identity_of_many_attributes_is_none() {
        let told = |key: &str, value: Value| {
            let mut user = json!({"username": "ann"});
            user[key] = value;
            answer(&json!({"authenticated": true, "user": user}), &["api"])
        };
        let long = "x".repeat(LARGEST);
        assert!(told("uid", json!(long)).is_err());
        assert!(told("groups", json!([long])).is_err());
        assert!(told("groups", json!(vec![""; LARGEST / 32 + 1])).is_err());
        assert!(told("extra", json!({"k": [long]})).is_err());
        assert!(told("extra", json!({(long): []})).is_err());
        let (user, _) = told("extra", json!({"k": ["v"], "none": null})).unwrap();
        assert_eq!(
            (user.extra["k"].clone(), user.extra["none"].len()),
            (vec!["v".to_owned()], 0)
        );
    }
}
