//! Issuers of tokens (OpenID Connect): real servers behind TLS, and tokens that are forged in every way we know.

mod attacks;
mod changes;
mod distributed;
mod mappings;

use std::collections::BTreeMap;
use std::sync::Arc;

use allot_apiserver::config::{AuthorizationMode, Config, authentication};
use allot_apiserver::keys::TokenKey;
use allot_apiserver::pki::Authority;
use allot_apiserver::{ReloadableConfig, Server, serve};
use allot_testing::wait::until;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http_body_util::Full;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::api::behind_tls::BehindTls;
use crate::{admin, with_config};

const OWN: &str = "https://kubernetes.default.svc";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const DISCOVERY: &str = "/.well-known/openid-configuration";
const KEYS: &str = "/keys";
/// Names and groups from claims, behind prefixes.
const MAPPINGS: &str = "claimMappings: {username: {claim: sub, prefix: 'oidc:'}, groups: {claim: groups, prefix: 'oidc:'}}";

/// A code, a place to go to, and a document.
type Document = (u16, &'static str, Bytes);

/// What an issuer says and has been asked.
#[derive(Default)]
struct Said {
    documents: BTreeMap<String, Document>,
    asked: Vec<String>,
    /// The header `Authorization` of each request that had one.
    credentials: Vec<String>,
}

/// An issuer that speaks HTTPS.
struct Issuer {
    url: String,
    ca: String,
    key: TokenKey,
    said: Arc<Mutex<Said>>,
    /// Whether it answers; as long as not, requests wait.
    answers: watch::Sender<bool>,
}

impl Issuer {
    async fn start() -> Self {
        let authority = Authority::generate("issuer").unwrap();
        let identity = authority.server("issuer", &[], &[[127, 0, 0, 1].into()]);
        let tls = serve::tls(&identity.unwrap(), None).unwrap();
        let said = Arc::<Mutex<Said>>::default();
        let answers = watch::Sender::new(true);
        let shared = (said.clone(), answers.clone());
        let server = BehindTls::start(tls.config(), move |request| {
            let (said, answers) = shared.clone();
            async move {
                let path = request.uri().to_string();
                said.lock().asked.push(path.clone());
                if let Some(credentials) = request.headers().get("authorization") {
                    let credentials = credentials.to_str().unwrap().to_owned();
                    said.lock().credentials.push(credentials);
                }
                answers.subscribe().wait_for(|it| *it).await.unwrap();
                let found = said.lock().documents.get(&path).cloned();
                let (code, location, body) = found.unwrap_or((404, "", Bytes::new()));
                let response = http::Response::builder().status(code);
                let response = response.header("location", location);
                Ok::<_, hyper::Error>(response.body(Full::new(body)).unwrap())
            }
        })
        .await;
        let issuer = Issuer {
            url: format!("https://127.0.0.1:{}", server.port),
            ca: authority.certificate().to_owned(),
            key: TokenKey::generate().unwrap(),
            said,
            answers,
        };
        let keys = format!("{}{KEYS}", issuer.url);
        issuer.serve_document(DISCOVERY, &json!({"issuer": issuer.url, "jwks_uri": keys}));
        issuer.publish(&[&issuer.key]);
        issuer
    }

    fn serve_document(&self, path: &str, document: &Value) {
        self.answer(path, (200, "", document.to_string().into()));
    }

    fn answer(&self, path: &str, document: Document) {
        self.said.lock().documents.insert(path.to_owned(), document);
    }

    fn publish(&self, keys: &[&TokenKey]) {
        let keys: Vec<Value> = keys.iter().map(|key| key.public().document()).collect();
        self.serve_document(KEYS, &json!({"keys": keys}));
    }

    /// The number of requests for a path.
    fn request_count(&self, path: &str) -> usize {
        let said = self.said.lock();
        said.asked.iter().filter(|it| *it == path).count()
    }

    /// The configuration of a server that trusts it, with these fields beside the issuer.
    fn configuration(&self, rest: &str) -> String {
        let ca = self.ca.replace('\n', "\\n");
        let url = &self.url;
        format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n\
             - {{issuer: {{url: '{url}', audiences: [client], certificateAuthority: \"{ca}\"}}, {rest}}}\n"
        )
    }

    /// Claims that make a user, with changes; null removes one.
    fn claims(&self, changes: Value) -> Value {
        let now = jiff::Timestamp::now().as_second();
        let mut claims = json!({"iss": self.url, "sub": "ann", "aud": "client", "exp": now + 600});
        for (key, value) in changes.as_object().unwrap() {
            match value {
                Value::Null => drop(claims.as_object_mut().unwrap().remove(key)),
                value => claims[key] = value.clone(),
            }
        }
        claims
    }

    /// A token with the claims, signed by its key.
    fn token(&self, changes: Value) -> String {
        let claims = self.claims(changes).to_string();
        signed(&self.key, &head(&self.key).to_string(), &claims)
    }
}

fn head(key: &TokenKey) -> Value {
    json!({"alg": key.public().algorithm(), "kid": key.public().id()})
}

fn signed(key: &TokenKey, head: &str, claims: &str) -> String {
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let text = format!("{}.{}", encode(head.as_bytes()), encode(claims.as_bytes()));
    let signature = key.sign(text.as_bytes()).unwrap();
    format!("{text}.{}", encode(&signature))
}

/// A server with this configuration.
async fn configured(configuration: &str) -> Server {
    let read = authentication::read(configuration.as_bytes(), &[OWN.to_owned()]);
    with_config(Config {
        token_issuers: read.unwrap().issuers,
        authorization: vec![AuthorizationMode::AlwaysAllow],
        ..Config::default()
    })
    .await
}

/// A server that has heard of its issuer.
async fn ready(issuer: &Issuer, rest: &str) -> Server {
    let server = configured(&issuer.configuration(rest)).await;
    started(&server, issuer).await;
    server
}

/// Waits until the issuer has been heard.
async fn started(server: &Server, issuer: &Issuer) {
    let token = issuer.token(json!({}));
    until("the issuer has answered", || async {
        let error = error_of(server, &token).await;
        match error.contains("not initialized") {
            true => Err(error),
            false => Ok(()),
        }
    })
    .await;
}

async fn review(server: &Server, token: &str, audiences: &[&str]) -> Value {
    let spec = json!({"token": token, "audiences": audiences});
    let (code, body) = admin(server, "POST", REVIEWS, json!({"spec": spec})).await;
    assert_eq!(code, 201, "{body}");
    body["status"].clone()
}

/// Why a token is none; empty if it is one.
async fn error_of(server: &Server, token: &str) -> String {
    let status = review(server, token, &[]).await;
    assert_eq!(
        status["error"].is_null(),
        status["authenticated"] == true,
        "{status}"
    );
    status["error"].as_str().unwrap_or_default().to_owned()
}

/// The code of a request with a token.
async fn code_with(server: &Server, token: &str) -> u16 {
    let request = http::Request::get("/api/v1/namespaces/default/pods");
    let request = request.header("authorization", format!("Bearer {token}"));
    let request = request.body(Full::new(Bytes::new())).unwrap();
    server.handle(request, None).await.status().as_u16()
}
