//! Admission webhooks: real servers behind TLS.

mod connections;
mod conversion;
mod conversion_clients;
mod credentials;
mod deletion;
mod hostile;
mod mutating;
mod notes;
mod services;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use allot_apiserver::pki::{Authority, Identity};
use allot_apiserver::{Server, serve};
use allot_store::{Backend, Draft, Expect, Write};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::admin;
use crate::api::behind_tls::BehindTls;

const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// What a server makes of a path and a review: code and answer. `None` permits the request when [`Hooks::release`] is
/// notified.
type Reply = fn(&str, &Value) -> Option<(u16, Value)>;

struct Hooks {
    port: u16,
    bundle: String,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
    connections: Arc<AtomicUsize>,
    /// The `Authorization` of the requests.
    proofs: Arc<Mutex<Vec<String>>>,
    /// Told of every request.
    news: Arc<Notify>,
    /// Ends the wait of one request that is not answered at once.
    release: Arc<Notify>,
}

impl Hooks {
    /// A server on a free port, with a certificate of a separate CA.
    async fn start(reply: Reply) -> Self {
        let authority = Authority::generate("webhooks").unwrap();
        let names = ["hook.default.svc".to_owned()];
        let identity = authority
            .server("hook", &names, &[[127, 0, 0, 1].into()])
            .unwrap();
        let bundle = authority.certificate().to_owned();
        Self::with_certificate(&identity, &bundle, reply).await
    }

    /// A server that requires client certificates of this CA.
    async fn requiring_client_ca(clients: &Authority, reply: Reply) -> Self {
        let authority = Authority::generate("webhooks").unwrap();
        let identity = authority
            .server("hook", &[], &[[127, 0, 0, 1].into()])
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = rustls::RootCertStore::empty();
        let certificate = CertificateDer::from_pem_slice(clients.certificate().as_bytes());
        roots.add(certificate.unwrap()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
        let chain = CertificateDer::pem_slice_iter(identity.certificate.as_bytes());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(
                chain.collect::<Result<_, _>>().unwrap(),
                PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap(),
            )
            .unwrap();
        Self::listening(tls.into(), authority.certificate(), reply).await
    }

    /// A server with this certificate; `trusted` is the CA that clients trust.
    async fn with_certificate(identity: &Identity, trusted: &str, reply: Reply) -> Self {
        let tls = serve::tls(identity, None).unwrap();
        Self::listening(tls.config(), trusted, reply).await
    }

    async fn listening(tls: Arc<rustls::ServerConfig>, trusted: &str, reply: Reply) -> Self {
        let asked = Arc::<Mutex<Vec<(String, Value)>>>::default();
        let proofs = Arc::<Mutex<Vec<String>>>::default();
        let [news, release] = [(); 2].map(|()| Arc::<Notify>::default());
        let shared = (asked.clone(), proofs.clone(), news.clone(), release.clone());
        let server = BehindTls::start(tls, move |request| {
            let (asked, proofs, news, release) = shared.clone();
            async move {
                let proof = request.headers().get("authorization");
                let proof = proof.map(|it| it.to_str().unwrap().to_owned());
                proofs.lock().extend(proof);
                let path = request.uri().to_string();
                let body = request.into_body().collect().await?.to_bytes();
                let review: Value = serde_json::from_slice(&body).unwrap();
                asked.lock().push((path.clone(), review.clone()));
                news.notify_one();
                let (code, answer) = match reply(&path, &review) {
                    Some(answer) => answer,
                    None => {
                        release.notified().await;
                        (200, response(&review, json!({"allowed": true})))
                    }
                };
                let body = Full::new(Bytes::from(answer.to_string()));
                let mut response = http::Response::new(body);
                *response.status_mut() = code.try_into().unwrap();
                Ok::<_, hyper::Error>(response)
            }
        })
        .await;
        Hooks {
            port: server.port,
            bundle: STANDARD.encode(trusted),
            asked,
            connections: server.connections,
            proofs,
            news,
            release,
        }
    }

    fn url(&self, path: &str) -> Value {
        let url = format!("https://127.0.0.1:{}{path}", self.port);
        json!({"url": url, "caBundle": self.bundle})
    }

    /// Returns the requests since the last call.
    fn take_requests(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut *self.asked.lock())
    }
}

/// A webhook about config maps that are created, with what makes it another.
fn webhook(name: &str, client: Value, more: Value) -> Value {
    let mut webhook = json!({
        "name": format!("{name}.example.com"), "clientConfig": client, "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
    });
    webhook
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    webhook
}

async fn install(server: &Server, kind: &str, name: &str, webhooks: &[Value]) {
    let configuration = json!({"metadata": {"name": name}, "webhooks": webhooks});
    let (code, answer) = admin(server, "POST", kind, configuration).await;
    assert_eq!(code, 201, "{answer}");
}

/// Creates a config map for as long as it takes to see what is said to that.
async fn map(server: &Server, name: &str) -> (u16, String) {
    let map = json!({"metadata": {"name": name}});
    let (code, answer) = admin(server, "POST", MAPS, map).await;
    if code == 201 {
        admin(server, "DELETE", &format!("{MAPS}/{name}"), Value::Null).await;
    }
    (
        code,
        answer["message"].as_str().unwrap_or_default().to_owned(),
    )
}

fn response(review: &Value, mut response: Value) -> Value {
    response["uid"] = review["request"]["uid"].clone();
    json!({"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response})
}

fn judge(path: &str, review: &Value) -> Option<(u16, Value)> {
    let name = review["request"]["name"].as_str().unwrap_or_default();
    let answer = match (path.split('?').next().unwrap(), name) {
        ("/slow", _) => return None,
        ("/broken", _) => return Some((500, json!("no"))),
        ("/missing", _) => return Some((404, json!("no"))),
        ("/silent", _) => {
            return Some((
                200,
                json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}),
            ));
        }
        ("/other", _) => {
            let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "response": {"uid": "x", "allowed": true}});
            return Some((200, answer));
        }
        (_, "plain") => json!({"allowed": false}),
        (_, "why") => {
            json!({"allowed": false, "status": {"message": "not today", "code": 409, "reason": "Conflict"}})
        }
        (_, "reason") => json!({"allowed": false, "status": {"reason": "Gone", "code": 200}}),
        _ => json!({"allowed": true, "warnings": ["mind the gap"]}),
    };
    Some((200, response(review, answer)))
}

#[tokio::test]
async fn a_webhook_refuses_in_its_own_words() {
    let hooks = Hooks::start(judge).await;
    let server = Server::in_memory().await.unwrap();
    let all = json!({"rules": [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]},
    ]});
    let checks = webhook("check", hooks.url("/check"), all);
    install(&server, VALIDATING, "checks", &[checks]).await;
    let by = "admission webhook \"check.example.com\" denied the request";
    for (name, code, text) in [
        ("plain", 400, format!("{by} without explanation")),
        ("why", 409, format!("{by}: not today")),
        ("reason", 400, format!("{by}: Gone")),
    ] {
        assert_eq!(map(&server, name).await, (code, text));
    }
    hooks.take_requests();
    // What it is told of a change that is not meant.
    let made = json!({"metadata": {"name": "a"}, "data": {"k": "1"}});
    assert_eq!(admin(&server, "POST", MAPS, made).await.0, 201);
    let path = format!("{MAPS}/a?dryRun=All&fieldManager=me");
    let patch = json!({"data": {"k": "2"}});
    assert_eq!(admin(&server, "PATCH", &path, patch).await.0, 200);
    assert_eq!(
        admin(&server, "DELETE", &format!("{MAPS}/a"), Value::Null)
            .await
            .0,
        200
    );
    let asked = hooks.take_requests();
    let [(_, created), (path, updated), (_, deleted)] = &asked[..] else {
        panic!("{asked:?}");
    };
    assert_eq!(path, "/check?timeout=10s");
    assert_eq!(created["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(created["request"]["oldObject"], Value::Null);
    let request = &updated["request"];
    let kind = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
    let resource = json!({"group": "", "version": "v1", "resource": "configmaps"});
    for (key, value) in [
        ("kind", &kind),
        ("requestKind", &kind),
        ("resource", &resource),
        ("requestResource", &resource),
        ("name", &json!("a")),
        ("namespace", &json!("default")),
        ("operation", &json!("UPDATE")),
        ("dryRun", &json!(true)),
        (
            "userInfo",
            &json!({"username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"]}),
        ),
        (
            "options",
            &json!({
                "kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"], "fieldManager": "me",
            }),
        ),
    ] {
        assert_eq!(&request[key], value, "{key}");
    }
    let owners = |object: &Value| -> Vec<Value> {
        let entries = object["metadata"]["managedFields"].as_array().unwrap();
        let mut managers: Vec<Value> = entries.iter().map(|it| it["manager"].clone()).collect();
        // They are in the order of their times.
        managers.sort_unstable_by_key(Value::to_string);
        managers
    };
    assert_eq!(owners(&request["object"]), [json!("me"), json!("unknown")]);
    assert_eq!(owners(&request["oldObject"]), [json!("unknown")]);
    assert_eq!(request["object"]["kind"], "ConfigMap");
    assert_eq!(request["object"]["data"]["k"], "2");
    assert_eq!(request["oldObject"]["data"]["k"], "1");
    let request = &deleted["request"];
    assert_eq!(
        (&request["operation"], &request["object"]),
        (&json!("DELETE"), &Value::Null)
    );
    assert_eq!(request["oldObject"]["metadata"]["name"], "a");
    // One connection serves all of it.
    assert_eq!(hooks.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn warnings_of_a_webhook_reach_the_client() {
    let hooks = Hooks::start(judge).await;
    let server = Server::in_memory().await.unwrap();
    let checks = webhook(
        "check",
        hooks.url("/"),
        json!({"admissionReviewVersions": ["v9", "v1beta1"]}),
    );
    install(&server, VALIDATING, "checks", &[checks]).await;
    let request = http::Request::post(MAPS)
        .body(Full::new(Bytes::from_static(
            br#"{"metadata":{"name":"a"}}"#,
        )))
        .unwrap();
    let user = allot_apiserver::identity::User::admin();
    let response = server.handle(request, Some(user)).await;
    assert_eq!(response.status(), 201);
    assert_eq!(response.headers()["warning"], "299 - \"mind the gap\"");
    assert_eq!(
        hooks.take_requests()[0].1["apiVersion"],
        "admission.k8s.io/v1beta1"
    );
}

#[tokio::test]
async fn conditions_and_selectors_spare_the_way() {
    let hooks = Hooks::start(judge).await;
    let server = Server::in_memory().await.unwrap();
    let wanted = webhook(
        "w",
        hooks.url("/"),
        json!({
            "matchConditions": [
                {"name": "mine", "expression": "object.metadata.name.startsWith('w')"},
                {"name": "data", "expression": "object.data.go == 'yes'"},
            ],
            "namespaceSelector": {"matchExpressions": [{"key": "quiet", "operator": "DoesNotExist"}]},
        }),
    );
    install(&server, VALIDATING, "w", &[wanted]).await;
    assert_eq!(map(&server, "plain").await.0, 201);
    let (code, text) = map(&server, "why").await;
    assert_eq!(
        (code, text.as_str()),
        (
            403,
            "configmaps \"why\" is forbidden: expression 'object.data.go == 'yes'' resulted in error: no such key: data"
        )
    );
    assert_eq!(hooks.take_requests(), []);
    let why = json!({"metadata": {"name": "why"}, "data": {"go": "yes"}});
    assert_eq!(admin(&server, "POST", MAPS, why.clone()).await.0, 409);
    assert_eq!(hooks.take_requests().len(), 1);
    let quiet = json!({"metadata": {"name": "quiet", "labels": {"quiet": ""}}});
    assert_eq!(
        admin(&server, "POST", "/api/v1/namespaces", quiet).await.0,
        201
    );
    let path = "/api/v1/namespaces/quiet/configmaps";
    assert_eq!(admin(&server, "POST", path, why).await.0, 201);
    // A webhook cannot keep its own configuration from being changed.
    let everything = json!({"rules": [
        {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]},
    ]});
    let trap = webhook("trap", hooks.url("/broken"), everything);
    install(&server, VALIDATING, "trap", &[trap]).await;
    assert_eq!(map(&server, "x").await.0, 500);
    let (code, _) = admin(
        &server,
        "DELETE",
        &format!("{VALIDATING}/trap"),
        Value::Null,
    )
    .await;
    assert_eq!(code, 200);
}

/// Lets the service `hook` have a ready endpoint, and one that is not ready.
async fn ready_endpoint(backend: &dyn Backend, hooks: &Hooks) {
    let slice = json!({
        "metadata": {
            "name": "hook", "labels": {"kubernetes.io/service-name": "hook"}, "resourceVersion": "@",
        },
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": hooks.port, "protocol": "TCP"}],
        "endpoints": [
            {"addresses": ["192.0.2.1"], "conditions": {"ready": false}},
            {"addresses": ["127.0.0.1"], "conditions": {"ready": true}},
        ],
    });
    // The API does not accept an endpoint on the loopback interface.
    let text = slice.to_string();
    let revision_at = text.find("@").unwrap();
    let draft = Draft::at(text.replace('@', "").into_bytes(), revision_at);
    let (collection, key) = ("discovery.k8s.io/endpointslices", "default/hook");
    let write = Write::put(collection, key, Expect::Absent, draft);
    backend.commit(write).await.unwrap();
}
