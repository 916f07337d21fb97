//! Access control of the HTTPS API. The API server authorizes the fine-grained subresources of `nodes` (KEP 2862), and
//! `nodes/proxy` for all other paths.
//!
//! A client authenticates by a certificate of the configured CA, or by a token that the API server accepts.
//! Authorization is by SubjectAccessReview; answers are cached as in a kubelet.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::{Duration, Instant};

use allot_certificates::subject::{CREDENTIAL_ID, Identity};
use http::{HeaderMap, Method, Request, StatusCode};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;

use super::Refusal;

/// How long a permission is remembered.
const ALLOWED: Duration = Duration::from_secs(5 * 60);
/// How long a refusal is remembered.
const DENIED: Duration = Duration::from_secs(30);
/// How long a token's user is remembered.
const KNOWN: Duration = Duration::from_secs(2 * 60);
/// How long the API server may take to answer.
const ANSWER: Duration = Duration::from_secs(10);
/// How many answers of a kind are remembered.
const MOST: usize = 1024;
/// Longer tokens are rejected.
const TOKEN_MAX: usize = 16 << 10;

/// An authenticated user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct User {
    name: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

const AUTHENTICATED: &str = "system:authenticated";

impl User {
    /// The user that has proven an identity, with a kubelet's groups and extra fields.
    pub(super) fn of(identity: Identity) -> Self {
        let credential = (CREDENTIAL_ID.to_owned(), vec![identity.credential_id]);
        Self {
            name: identity.name,
            uid: identity.uid,
            groups: authenticated(identity.groups),
            extra: BTreeMap::from([credential]),
        }
    }
}

/// The groups of a user, with the one of all authenticated users.
fn authenticated(mut groups: Vec<String>) -> Vec<String> {
    if !groups.iter().any(|group| group == AUTHENTICATED) {
        groups.push(AUTHENTICATED.to_owned());
    }
    groups
}

/// Answers that count for a while.
struct Answers<K, V>(Mutex<HashMap<K, (Instant, V)>>);

impl<K: Eq + Hash + Clone, V: Clone> Answers<K, V> {
    fn new() -> Self {
        Self(Mutex::default())
    }

    fn get(&self, key: &K) -> Option<V> {
        self.get_at(key, Instant::now())
    }

    fn get_at(&self, key: &K, now: Instant) -> Option<V> {
        let known = self.0.lock();
        let (end, value) = known.get(key)?;
        (*end > now).then(|| value.clone())
    }

    fn put(&self, key: K, value: V, counts: Duration) {
        let now = Instant::now();
        let mut known = self.0.lock();
        if known.len() >= MOST {
            known.retain(|_, (end, _)| *end > now);
        }
        if known.len() >= MOST
            && let Some(first) = known
                .iter()
                .min_by_key(|(_, (end, _))| *end)
                .map(|(key, _)| key.clone())
        {
            known.remove(&first);
        }
        known.insert(key, (now + counts, value));
    }
}

type Question = (User, &'static str, &'static str);

/// Asks the API server, and caches its answers.
pub(super) struct Access {
    client: Client,
    node: String,
    tokens: Answers<String, Option<User>>,
    decisions: Answers<Question, bool>,
}

impl Access {
    pub(super) fn new(client: Client, node: String) -> Self {
        Self {
            client,
            node,
            tokens: Answers::new(),
            decisions: Answers::new(),
        }
    }

    /// The user of the request: that of the certificate, else that of the token.
    ///
    /// # Errors
    /// 401.
    pub(super) async fn authenticate<B>(
        &self,
        certificate: Option<User>,
        request: &Request<B>,
    ) -> Result<User, Refusal> {
        if let Some(user) = certificate {
            return Ok(user);
        }
        let unknown = || Refusal(StatusCode::UNAUTHORIZED, "Unauthorized".to_owned());
        let token = bearer(request.headers()).ok_or_else(unknown)?;
        if let Some(known) = self.tokens.get(&token) {
            return known.ok_or_else(unknown);
        }
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.clone(),
                ..Default::default()
            },
            ..Default::default()
        };
        let api = Api::<TokenReview>::all(self.client.clone());
        let params = PostParams::default();
        let answer = tokio::time::timeout(ANSWER, api.create(&params, &review)).await;
        let status = match answer {
            Ok(Ok(review)) => review.status.unwrap_or_default(),
            Ok(Err(error)) => {
                tracing::warn!(%error, "the API server does not tell who has a token");
                return Err(unknown());
            }
            Err(_) => {
                tracing::warn!("the API server does not tell in time who has a token");
                return Err(unknown());
            }
        };
        let user = status.user.filter(|_| status.authenticated == Some(true));
        let user = user.map(|user| User {
            name: user.username.unwrap_or_default(),
            uid: user.uid.unwrap_or_default(),
            groups: authenticated(user.groups.unwrap_or_default()),
            extra: user.extra.unwrap_or_default(),
        });
        self.tokens.put(token, user.clone(), KNOWN);
        user.ok_or_else(unknown)
    }

    /// Authorizes a request; any one of the subresources of a path is sufficient.
    ///
    /// # Errors
    /// 403, and 500 if the API server cannot be asked, with a kubelet's messages.
    pub(super) async fn authorize(
        &self,
        user: &User,
        method: &Method,
        path: &str,
    ) -> Result<(), Refusal> {
        let verb = verb(method);
        let subresources = subresources(path);
        for subresource in &subresources {
            if self.decide(user, verb, subresource).await.map_err(|()| {
                let text = format!(
                    "Authorization error (user={}, verb={verb}, resource=nodes, subresource={subresource})",
                    user.name
                );
                Refusal(StatusCode::INTERNAL_SERVER_ERROR, text)
            })? {
                return Ok(());
            }
        }
        let text = format!(
            "Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{}])\n",
            user.name,
            subresources.join(" ")
        );
        Err(Refusal(StatusCode::FORBIDDEN, text))
    }

    async fn decide(
        &self,
        user: &User,
        verb: &'static str,
        subresource: &'static str,
    ) -> Result<bool, ()> {
        let question = (user.clone(), verb, subresource);
        if let Some(known) = self.decisions.get(&question) {
            return Ok(known);
        }
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.name.clone()),
                uid: Some(user.uid.clone()).filter(|uid| !uid.is_empty()),
                groups: Some(user.groups.clone()),
                extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
                resource_attributes: Some(ResourceAttributes {
                    verb: Some(verb.to_owned()),
                    version: Some("v1".to_owned()),
                    resource: Some("nodes".to_owned()),
                    subresource: Some(subresource.to_owned()),
                    name: Some(self.node.clone()),
                    ..Default::default()
                }),
                ..Default::default()
            },
            ..Default::default()
        };
        let api = Api::<SubjectAccessReview>::all(self.client.clone());
        let params = PostParams::default();
        let allowed = match tokio::time::timeout(ANSWER, api.create(&params, &review)).await {
            Ok(Ok(review)) => review.status.is_some_and(|status| status.allowed),
            Ok(Err(error)) => {
                tracing::warn!(%error, user = user.name, "the API server does not tell what a user may do");
                return Err(());
            }
            Err(_) => {
                tracing::warn!(
                    user = user.name,
                    "the API server does not tell in time what a user may do"
                );
                return Err(());
            }
        };
        let counts = if allowed { ALLOWED } else { DENIED };
        self.decisions.put(question, allowed, counts);
        Ok(allowed)
    }
}

/// The token in the header, if there is one that could be a token. Of several headers none counts, as for the API
/// server: a proxy in front may have checked another one than the first.
fn bearer(headers: &HeaderMap) -> Option<String> {
    let mut values = headers.get_all(http::header::AUTHORIZATION).iter();
    let header = values.next().filter(|_| values.next().is_none())?;
    // As a kubelet takes it apart: what follows the second word is ignored.
    let mut words = header.to_str().ok()?.trim().splitn(3, ' ');
    let (scheme, token) = (words.next()?, words.next()?);
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= TOKEN_MAX)
        .then(|| token.to_owned())
}

/// What a method is in the API's terms.
fn verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::GET => "get",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    }
}

/// The subresources of `nodes` that a decoded path is part of, the narrowest first.
fn subresources(path: &str) -> Vec<&'static str> {
    let below = |root: &str| {
        path.strip_prefix(root)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    const NARROW: [(&str, &str); 4] = [
        ("/pods", "pods"),
        ("/healthz", "healthz"),
        ("/configz", "configz"),
        ("/runningpods", "pods"),
    ];
    const ALONE: [(&str, &str); 6] = [
        ("/stats", "stats"),
        ("/metrics", "metrics"),
        ("/logs", "log"),
        ("/checkpoint", "checkpoint"),
        ("/statusz", "statusz"),
        ("/flagz", "configz"),
    ];
    let named = |table: &[(&str, &'static str)]| {
        let found = table.iter().find(|(root, _)| below(root));
        found.map(|(_, subresource)| *subresource)
    };
    let mut found: Vec<&'static str> = named(&NARROW).into_iter().collect();
    found.push(named(&ALONE).unwrap_or("proxy"));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, expected: &[&str]) {
        assert_eq!(subresources(path), expected, "{path}");
    }

    #[test]
    fn every_path_has_its_subresources() {
        check("/pods", &["pods", "proxy"]);
        check("/pods/", &["pods", "proxy"]);
        check("/runningpods/", &["pods", "proxy"]);
        check("/healthz", &["healthz", "proxy"]);
        check("/healthz/ping", &["healthz", "proxy"]);
        check("/configz", &["configz", "proxy"]);
        check("/stats/summary", &["stats"]);
        check("/metrics", &["metrics"]);
        check("/metrics/cadvisor", &["metrics"]);
        check("/logs/kubelet.log", &["log"]);
        check("/checkpoint/default/p/c", &["checkpoint"]);
        check("/statusz", &["statusz"]);
        check("/flagz", &["configz"]);
        for path in [
            "/",
            "//pods",
            "/podsecrets",
            "/metricsx",
            "/exec/default/p/c",
            "/run/default/p/c",
            "/attach/default/p/c",
            "/portForward/default/p",
            "/containerLogs/default/p/c",
            "/debug/pprof/heap",
        ] {
            check(path, &["proxy"]);
        }
    }

    #[test]
    fn answers_are_forgotten_in_time_and_never_many() {
        let answers = Answers::new();
        answers.put(0, true, DENIED);
        let now = Instant::now();
        assert_eq!(answers.get_at(&0, now), Some(true));
        assert_eq!(answers.get_at(&0, now + DENIED), None);
        for key in 0..2 * MOST {
            answers.put(key, true, ALLOWED);
        }
        assert_eq!(answers.0.lock().len(), MOST);
        assert_eq!(answers.get(&(2 * MOST - 1)), Some(true));
    }

    #[test]
    fn only_a_bearer_token_is_one() {
        let tokens = |values: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for value in values {
                let value = http::HeaderValue::from_bytes(value).unwrap();
                headers.append(http::header::AUTHORIZATION, value);
            }
            bearer(&headers)
        };
        let token = |value: &[u8]| tokens(&[value]);
        assert_eq!(token(b"Bearer abc"), Some("abc".to_owned()));
        assert_eq!(token(b"bearer abc"), Some("abc".to_owned()));
        assert_eq!(token(b"Bearer abc def"), Some("abc".to_owned()));
        assert_eq!(tokens(&[]), None);
        assert_eq!(tokens(&[b"Bearer abc", b"Bearer def"]), None);
        assert_eq!(tokens(&[b"Bearer abc", b"Bearer abc"]), None);
        assert_eq!(tokens(&[b"Basic abc", b"Bearer def"]), None);
        for value in [&b"Basic abc"[..], b"Bearer", b"Bearer  ", b"Bearer jos\xe9"] {
            assert_eq!(token(value), None);
        }
    }
}
