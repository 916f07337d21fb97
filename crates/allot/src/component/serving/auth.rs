//! Delegated authentication and authorization: the API server decides about readers of metrics.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use http::HeaderMap;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;
use parking_lot::Mutex;

/// How long an answer of the API server is used, as upstream's delegated authentication and authorization do.
const FRESH: Duration = Duration::from_secs(10);
/// Maximum number of cached reviews of one kind.
const MAX_ANSWERS: usize = 1000;
/// How long the API server may take for one review.
const REVIEW: Duration = Duration::from_secs(10);
/// Longer tokens are refused without asking.
const MAX_TOKEN: usize = 16 << 10;

/// Why a request is not served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// The request has no valid credentials.
    #[error("Unauthorized")]
    Unauthorized,
    /// The identity has no right to the path.
    #[error("{0}")]
    Forbidden(String),
    /// The API server did not review the request.
    #[error("Internal Server Error: {0}")]
    Unavailable(String),
}

/// The bearer token of a request; none for an anonymous one.
///
/// # Errors
/// [`Denied::Unauthorized`] for an Authorization header that holds no usable token: it is never ignored.
pub fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Denied> {
    let mut values = headers.get_all(http::header::AUTHORIZATION).into_iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let token = value
        .to_str()
        .ok()
        .filter(|_| values.next().is_none())
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim())
        .filter(|token| !token.is_empty() && token.len() <= MAX_TOKEN);
    token.map(Some).ok_or(Denied::Unauthorized)
}

/// Answers of the API server, cached for a short time.
struct Answers<K, V>(Mutex<HashMap<K, (Instant, V)>>);

impl<K: Eq + Hash, V: Clone> Answers<K, V> {
    fn new() -> Self {
        Self(Mutex::new(HashMap::new()))
    }

    fn get(&self, key: &K) -> Option<V> {
        let all = self.0.lock();
        let (since, value) = all.get(key)?;
        (since.elapsed() < FRESH).then(|| value.clone())
    }

    fn put(&self, key: K, value: V) {
        let mut all = self.0.lock();
        if all.len() >= MAX_ANSWERS {
            all.retain(|_, (since, _)| since.elapsed() < FRESH);
        }
        // A flood of new tokens costs a review each, never memory.
        if all.len() >= MAX_ANSWERS {
            all.clear();
        }
        all.insert(key, (Instant::now(), value));
    }
}

/// Reviews tokens and permissions with the API server.
pub struct Reviews {
    client: kube::Client,
    /// Keyed by the token itself, which is in the memory of this process anyway while it serves a request.
    users: Answers<String, Option<UserInfo>>,
    rights: Answers<(String, String, String), bool>,
}

impl Reviews {
    pub fn new(client: kube::Client) -> Self {
        Self {
            client,
            users: Answers::new(),
            rights: Answers::new(),
        }
    }

    /// Checks that the owner of the token, or an anonymous user, has the right to `verb` on a path.
    ///
    /// # Errors
    /// The token is not valid, the user has no right, or the API server does not answer.
    pub async fn authorize(
        &self,
        token: Option<&str>,
        verb: &str,
        path: &str,
    ) -> Result<(), Denied> {
        let user = match token {
            Some(token) => self.user(token).await?,
            None => UserInfo {
                username: Some("system:anonymous".to_owned()),
                groups: Some(vec!["system:unauthenticated".to_owned()]),
                ..UserInfo::default()
            },
        };
        let name = user.username.clone().unwrap_or_default();
        // Groups and extra follow from the token; the key holds all of the identity.
        let identity = serde_json::to_string(&user).unwrap_or_default();
        let key = (identity, verb.to_owned(), path.to_owned());
        let allowed = match self.rights.get(&key) {
            Some(known) => known,
            None => {
                let allowed = self.may(user, verb, path).await?;
                self.rights.put(key, allowed);
                allowed
            }
        };
        if allowed {
            return Ok(());
        }
        let why = format!("forbidden: User {name:?} cannot {verb} path {path:?}");
        Err(Denied::Forbidden(why))
    }

    async fn user(&self, token: &str) -> Result<UserInfo, Denied> {
        let known = match self.users.get(&token.to_owned()) {
            Some(known) => known,
            None => {
                let review = TokenReview {
                    spec: TokenReviewSpec {
                        token: token.to_owned(),
                        ..TokenReviewSpec::default()
                    },
                    ..TokenReview::default()
                };
                let status = self.review(review).await?.status.unwrap_or_default();
                let user = match status.authenticated {
                    Some(true) => status.user,
                    _ => None,
                };
                self.users.put(token.to_owned(), user.clone());
                user
            }
        };
        known.ok_or(Denied::Unauthorized)
    }

    async fn may(&self, user: UserInfo, verb: &str, path: &str) -> Result<bool, Denied> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username,
                uid: user.uid,
                groups: user.groups,
                extra: user.extra,
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(path.to_owned()),
                    verb: Some(verb.to_owned()),
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let status = self.review(review).await?.status.unwrap_or_default();
        Ok(status.allowed && !status.denied.unwrap_or(false))
    }

    async fn review<K>(&self, review: K) -> Result<K, Denied>
    where
        K: kube::Resource<DynamicType = ()>
            + Clone
            + std::fmt::Debug
            + serde::Serialize
            + serde::de::DeserializeOwned,
    {
        let api: Api<K> = Api::all(self.client.clone());
        let params = PostParams::default();
        let answer = tokio::time::timeout(REVIEW, api.create(&params, &review)).await;
        match answer {
            Ok(Ok(review)) => Ok(review),
            Ok(Err(error)) => {
                // Without permission to create reviews (ClusterRole system:auth-delegator) no client can read metrics.
                tracing::warn!(%error, "{} failed", K::kind(&()));
                Err(Denied::Unavailable(format!(
                    "{} failed; see the log of this component",
                    K::kind(&())
                )))
            }
            Err(_) => Err(Denied::Unavailable(format!(
                "{} took too long",
                K::kind(&())
            ))),
        }
    }
}
