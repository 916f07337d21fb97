//! Extension API servers: real ones behind TLS.

mod availability;
mod fronts;
mod openapi;
mod requests;

use std::sync::Arc;

use allot_apiserver::config::FrontProxy;
use allot_apiserver::identity::User;
use allot_apiserver::pki::Authority;
use allot_apiserver::{Config, Limits, Server, serve};
use allot_store::{Backend, Draft, Embedded, Expect, Options, Write};
use allot_testing::wait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::admin;
use crate::api::behind_tls::{BehindTls, ClientCertificate};

const APISERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const NAME: &str = "v1.ext.example.com";
const THINGS: &str = "/apis/ext.example.com/v1/namespaces/a/things";

type Answer = Response<Full<Bytes>>;
/// The code of an answer that is never sent.
const SILENT: u16 = 599;
/// What an extension says to a path; `None` for its usual answer.
type Responses = fn(&str) -> Option<Answer>;

/// A request that an extension got: method, target and headers, and the common name of the client's certificate.
#[derive(Debug, Clone)]
struct ReceivedRequest {
    method: String,
    target: String,
    headers: HeaderMap,
    body: Bytes,
    client: Option<String>,
}

impl ReceivedRequest {
    fn all(&self, name: &str) -> Vec<&str> {
        let values = self.headers.get_all(name).iter();
        values.map(|it| it.to_str().unwrap()).collect()
    }
}

/// An extension API server on the loopback interface.
struct Extension {
    port: u16,
    bundle: String,
    got: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl Extension {
    async fn start(says: Responses) -> Self {
        Self::of_service("ext", says).await
    }

    async fn of_service(name: &str, says: Responses) -> Self {
        let authority = Authority::generate("extension").unwrap();
        let names = [format!("{name}.default.svc")];
        let identity = authority.server("ext", &names, &[]).unwrap();
        // It asks for a client certificate, of whatever CA.
        let tls = serve::tls(&identity, Some(authority.certificate())).unwrap();
        let got = Arc::<Mutex<Vec<ReceivedRequest>>>::default();
        let shared = got.clone();
        let server = BehindTls::start(tls.config(), move |request| {
            answer(request, says, shared.clone())
        });
        Extension {
            port: server.await.port,
            bundle: STANDARD.encode(authority.certificate()),
            got,
        }
    }

    /// Returns the requests of users since the last call, without those of the aggregator.
    fn take_requests(&self) -> Vec<ReceivedRequest> {
        let mut got = std::mem::take(&mut *self.got.lock());
        let own = ["system:kube-aggregator", "system:aggregator"];
        got.retain(|it| !own.iter().any(|own| it.all("x-remote-user") == [*own]));
        got
    }
}

async fn answer(
    request: Request<Incoming>,
    says: Responses,
    got: Arc<Mutex<Vec<ReceivedRequest>>>,
) -> Result<Answer, hyper::Error> {
    let (mut head, body) = request.into_parts();
    let certificate = head.extensions.get::<ClientCertificate>();
    let client = certificate.and_then(|it| {
        let named = allot_certificates::subject::identity(&it.0);
        named.unwrap().map(|it| it.name)
    });
    let upgrade = head.extensions.remove::<hyper::upgrade::OnUpgrade>();
    let target = head.uri.to_string();
    let body = body.collect().await?.to_bytes();
    got.lock().push(ReceivedRequest {
        method: head.method.to_string(),
        target: target.clone(),
        headers: head.headers.clone(),
        body,
        client,
    });
    match says(&target) {
        Some(answer) if answer.status() == SILENT => return std::future::pending().await,
        Some(answer) => return Ok(answer),
        None => {}
    }
    if let (Some(protocol), Some(upgrade)) = (head.headers.get("upgrade"), upgrade) {
        tokio::spawn(async move {
            let mut stream = TokioIo::new(upgrade.await.unwrap());
            let mut sent = [0; 4];
            stream.read_exact(&mut sent).await.unwrap();
            stream
                .write_all(&[b"re: ", &sent[..]].concat())
                .await
                .unwrap();
        });
        let mut answer = Response::new(Full::default());
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        answer.headers_mut().insert("upgrade", protocol.clone());
        answer
            .headers_mut()
            .insert("connection", "Upgrade".parse().unwrap());
        return Ok(answer);
    }
    let things = json!({
        "resource": "things", "singularResource": "thing", "scope": "Namespaced", "verbs": ["get", "list"],
        "responseKind": {"group": "ext.example.com", "version": "v1", "kind": "Thing"},
    });
    let path = target.split('?').next().unwrap();
    Ok(match path {
        "/apis" => {
            let document = json!({
                "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
                "items": [{"metadata": {"name": "ext.example.com"}, "versions": [{"version": "v1", "resources": [things]}]}],
            });
            let mut answer = with(200, &document);
            let media = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
            answer
                .headers_mut()
                .insert("content-type", media.parse().unwrap());
            answer
        }
        "/apis/ext.example.com/v1" => with(
            200,
            &json!({"kind": "APIResourceList", "groupVersion": "ext.example.com/v1", "resources": []}),
        ),
        _ => with(200, &json!({"kind": "ThingList", "path": target})),
    })
}

fn with(code: u16, body: &Value) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body.to_string())));
    *answer.status_mut() = code.try_into().unwrap();
    answer
        .headers_mut()
        .insert("content-type", "application/json".parse().unwrap());
    answer
}

/// A server with a certificate for extensions, and its store.
async fn server() -> (Server, Arc<Embedded>) {
    server_within(Limits::default()).await
}

async fn server_within(limits: Limits) -> (Server, Arc<Embedded>) {
    let backend = Arc::new(Embedded::in_memory(Options::default()));
    let fronts = Authority::generate("front-proxy-ca").unwrap();
    let config = Config {
        front_proxy: FrontProxy {
            client: Some(fronts.client("front-proxy-client", &[]).unwrap()),
            headers: None,
        },
        limits,
        ..Config::default()
    };
    let server = Server::new(backend.clone(), config);
    server.bootstrap().await.unwrap();
    (server, backend)
}

fn apiservice(spec: Value) -> Value {
    let mut service = json!({
        "metadata": {"name": NAME},
        "spec": {"group": "ext.example.com", "version": "v1", "groupPriorityMinimum": 2000, "versionPriority": 10,
            "service": {"namespace": "default", "name": "ext"}},
    });
    let fields = service["spec"].as_object_mut().unwrap();
    fields.extend(spec.as_object().unwrap().clone());
    service
}

async fn create(server: &Server, path: &str, object: Value) {
    let (code, answer) = admin(server, "POST", path, object).await;
    assert_eq!(code, 201, "{answer}");
}

async fn create_service(server: &Server, name: &str) {
    let service = json!({
        "metadata": {"name": name}, "spec": {"ports": [{"name": "https", "port": 443}]},
    });
    create(server, SERVICES, service).await;
}

/// Stores a slice with an endpoint on the loopback interface, which validation would not let through.
async fn endpoint(backend: &Embedded, port_name: &str, port: u16, ready: bool) {
    endpoint_of(backend, "ext", port_name, port, ready).await;
}

async fn endpoint_of(backend: &Embedded, service: &str, port_name: &str, port: u16, ready: bool) {
    let name = format!("{service}-1");
    let slice = json!({
        "addressType": "IPv4",
        "metadata": {"labels": {"kubernetes.io/service-name": service}, "name": name, "namespace": "default",
            "resourceVersion": "@"},
        "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": ready}}],
        "ports": [{"name": port_name, "port": port}],
    });
    let text = slice.to_string();
    let draft = Draft::at(text.replace('@', "").into_bytes(), text.find('@').unwrap());
    let collection = "discovery.k8s.io/endpointslices";
    let key = format!("default/{name}");
    let known = backend.get(collection, &key).await.unwrap();
    let expect = known.map_or(Expect::Absent, |it| Expect::Revision(it.revision));
    let write = Write::put(collection, key, expect, draft);
    backend.commit(write).await.unwrap();
}

/// Waits for the condition of the APIService; returns its message.
async fn wait_for_condition(server: &Server, status: &str, reason: &str) -> String {
    wait::until(reason, || async {
        let (_, object) = admin(server, "GET", &format!("{APISERVICES}/{NAME}"), Value::Null).await;
        let condition = &object["status"]["conditions"][0];
        match condition["status"] == status && condition["reason"] == reason {
            true => Ok(condition["message"].as_str().unwrap().to_owned()),
            false => Err(condition.clone()),
        }
    })
    .await
}

/// A server with an extension that is available.
async fn with_extension(says: Responses) -> (Server, Arc<Embedded>, Extension) {
    with_extension_and_limits(Limits::default(), says).await
}

async fn with_extension_and_limits(
    limits: Limits,
    says: Responses,
) -> (Server, Arc<Embedded>, Extension) {
    let extension = Extension::start(says).await;
    let (server, backend) = server_within(limits).await;
    create_service(&server, "ext").await;
    endpoint(&backend, "https", extension.port, true).await;
    let object = apiservice(json!({"caBundle": extension.bundle}));
    create(&server, APISERVICES, object).await;
    wait_for_condition(&server, "True", "Passed").await;
    (server, backend, extension)
}

/// Sends a request with headers as a user; returns status, headers and body.
async fn send_as(
    server: &Server,
    user: User,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> (u16, HeaderMap, String) {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = match method {
        "POST" => "{\"a\":1}",
        _ => "",
    };
    let request = request.body(Full::new(Bytes::from(body))).unwrap();
    let response = server.handle(request, Some(user)).await;
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&body).into_owned();
    (head.status.as_u16(), head.headers, text)
}
