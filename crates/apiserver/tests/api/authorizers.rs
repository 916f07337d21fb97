//! Webhooks of authorization and authentication: real servers, which may do anything.

mod authorization;
mod chain;
mod hostile;
mod images;
mod tokens;

use std::sync::Arc;

use allot_apiserver::config::authorization::conditions::Conditions;
use allot_apiserver::config::authorization::{ReviewVersion, WebhookOptions};
use allot_apiserver::config::{AuthorizationMode, Config, Kubeconfig};
use allot_apiserver::identity::User;
use allot_apiserver::pki::Authority;
use allot_apiserver::serve;
use allot_apiserver::{ReloadableConfig, Server};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::time::Duration;
use tempfile::TempDir;

use crate::api::behind_tls::BehindTls;
use crate::{send, with_config};

const PODS: &str = "/api/v1/namespaces/default/pods";
const ACCESS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// Trusts the authority of the webhook.
const CA: &str = "certificate-authority: ca.crt";
const HOUR: Duration = Duration::from_secs(3600);

/// What a webhook makes of a review: the code, a place to go to, and the body. `None`: it never answers.
type Reply = Box<dyn Fn(&Value) -> Option<(u16, String, Bytes)> + Send + Sync>;

/// A webhook, and what it was asked.
struct Hook {
    port: u16,
    ca: String,
    asked: Arc<Mutex<Vec<Value>>>,
    /// The header `Authorization` of the last request.
    authorization: Arc<Mutex<String>>,
    directory: TempDir,
}

/// An answer with this status.
fn status(status: &Value) -> Option<(u16, String, Bytes)> {
    let body = json!({"status": status}).to_string();
    Some((200, String::new(), body.into()))
}

impl Hook {
    async fn start(reply: Reply) -> Self {
        let authority = Authority::generate("hooks").unwrap();
        let identity = authority.server("hook", &[], &[[127, 0, 0, 1].into()]);
        let tls = serve::tls(&identity.unwrap(), None).unwrap();
        let asked = Arc::<Mutex<Vec<Value>>>::default();
        let authorization = Arc::<Mutex<String>>::default();
        let shared = (asked.clone(), authorization.clone(), Arc::new(reply));
        let server = BehindTls::start(tls.config(), move |request| {
            let (asked, sent, reply) = shared.clone();
            async move {
                let header = request.headers().get("authorization");
                let header = header.map(|it| it.to_str().unwrap().to_owned());
                *sent.lock() = header.unwrap_or_default();
                let body = request.into_body().collect().await?.to_bytes();
                let review: Value = serde_json::from_slice(&body).unwrap();
                let answer = reply(&review);
                asked.lock().push(review);
                let Some((code, location, body)) = answer else {
                    return std::future::pending().await;
                };
                let response = http::Response::builder().status(code);
                let response = response.header("location", location);
                Ok::<_, hyper::Error>(response.body(Full::new(body)).unwrap())
            }
        })
        .await;
        Hook {
            port: server.port,
            ca: authority.certificate().to_owned(),
            asked,
            authorization,
            directory: tempfile::tempdir().unwrap(),
        }
    }

    /// A kubeconfig with this cluster.
    fn kubeconfig_of(&self, cluster: &str) -> std::path::PathBuf {
        let ca = self.directory.path().join("ca.crt");
        std::fs::write(ca, &self.ca).unwrap();
        let file = self.directory.path().join("kubeconfig");
        let text = format!(
            "clusters: [{{name: c, cluster: {cluster}}}]\nusers: [{{name: u, user: {{token: secret}}}}]\n\
             contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n"
        );
        std::fs::write(&file, text).unwrap();
        file
    }

    /// Its URL and what is trusted, as a cluster of a kubeconfig.
    fn cluster(&self, trusted: &str) -> String {
        let port = self.port;
        format!("{{server: 'https://127.0.0.1:{port}/ask?me=1', {trusted}}}")
    }

    fn kubeconfig(&self) -> std::path::PathBuf {
        self.kubeconfig_of(&self.cluster(CA))
    }

    /// Options that keep no answers.
    fn options(&self) -> WebhookOptions {
        WebhookOptions {
            name: "hook".to_owned(),
            kubeconfig: Kubeconfig::read(&self.kubeconfig()).unwrap(),
            version: ReviewVersion::V1,
            timeout: Duration::from_secs(20),
            authorized_ttl: Duration::ZERO,
            unauthorized_ttl: Duration::ZERO,
            denies_on_error: false,
            conditions: Conditions::default(),
        }
    }

    fn last(&self) -> Value {
        self.asked.lock().last().unwrap().clone()
    }

    fn count(&self) -> usize {
        self.asked.lock().len()
    }
}

async fn server(authorization: Vec<AuthorizationMode>) -> Server {
    with_config(Config {
        authorization,
        disabled_admission: vec!["ServiceAccount".to_owned()],
        ..Config::default()
    })
    .await
}

fn webhook(options: WebhookOptions) -> AuthorizationMode {
    AuthorizationMode::Webhook(Arc::new(options))
}

fn ann() -> User {
    let mut user = User::new("ann", ["team"]);
    user.uid = "7".to_owned();
    user.extra.insert("k".to_owned(), vec!["v".to_owned()]);
    user
}

/// The code, and the message of a failure.
async fn get(server: &Server, user: User, path: &str) -> (u16, String) {
    let (code, body) = send(server, user, "GET", path, "application/json", b"").await;
    let message = body["message"].as_str().unwrap_or_default();
    (code, message.to_owned())
}
