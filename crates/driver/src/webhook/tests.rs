use std::path::Path;
use std::time::Duration;

use allot_apiserver::pki::Authority;
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Body, Bytes, Frame};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use super::*;

const DRIVER: &str = "leds.example.com";

fn parse(parameters: &Value) -> Result<u64, String> {
    match (&parameters["brightness"], parameters["panic"] == true) {
        (_, true) => panic!("as it was asked to"),
        (Value::Number(number), _) => number.as_u64().ok_or("brightness: not whole".into()),
        _ => Err(format!("no brightness in {parameters}")),
    }
}

fn review(resource: &str, version: &str, operation: &str, object: Value, old: Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u1", "name": "it", "namespace": "default", "operation": operation, "object": object, "oldObject": old,
        "kind": {"group": "resource.k8s.io", "version": version, "kind": "X"},
        "resource": {"group": "resource.k8s.io", "version": version, "resource": resource},
        "userInfo": {"username": "me"}, "options": null, "dryRun": false,
    }})
}

fn config(driver: &str, parameters: Value) -> Value {
    json!({"requests": ["a"], "opaque": {"driver": driver, "parameters": parameters}})
}

fn claim(configs: &[Value]) -> Value {
    json!({"metadata": {"name": "it"}, "spec": {"devices": {"requests": [], "config": configs}}})
}

fn checks() -> Checks {
    Webhook::new().driver(DRIVER, parse).checks
}

fn response(review: &Value) -> Value {
    let answer = super::review::answer(&checks(), review.to_string().as_bytes()).unwrap();
    assert_eq!(answer["kind"], "AdmissionReview");
    assert_eq!(answer["response"]["uid"], "u1");
    answer["response"].clone()
}

#[test]
fn parameters_of_every_kind_and_version_are_checked() {
    let configs = [
        config("other.example.com", json!({"x": 1})),
        json!({"requests": ["a"]}),
        config(DRIVER, json!({"brightness": 1})),
        config(DRIVER, json!({"brightnes": 1})),
    ];
    let template = json!({"spec": {"metadata": {}, "spec": claim(&configs)["spec"]}});
    let class = json!({"spec": {"selectors": [], "config": configs}});
    for version in ["v1", "v1beta2", "v1beta1", "v1alpha3"] {
        for (resource, object, kind, path) in [
            (
                "resourceclaims",
                &claim(&configs),
                "ResourceClaim",
                "spec.devices.config[3]",
            ),
            (
                "resourceclaimtemplates",
                &template,
                "ResourceClaimTemplate",
                "spec.spec.devices.config[3]",
            ),
            ("deviceclasses", &class, "DeviceClass", "spec.config[3]"),
        ] {
            let said = response(&review(
                resource,
                version,
                "CREATE",
                object.clone(),
                Value::Null,
            ));
            let field = format!("{path}.opaque.parameters");
            let cause = r#"no brightness in {"brightnes":1}"#;
            assert_eq!(
                said,
                json!({"uid": "u1", "allowed": false, "status": {
                    "status": "Failure", "code": 422, "reason": "Invalid",
                    "message": format!("1 configs failed to validate: object at {field} is invalid: {cause}"),
                    "details": {"group": "resource.k8s.io", "kind": kind, "name": "it",
                        "causes": [{"reason": "FieldValueInvalid", "field": field, "message": cause}]},
                }})
            );
        }
    }
    let good = claim(&configs[..3]);
    let said = response(&review("resourceclaims", "v1", "CREATE", good, Value::Null));
    assert_eq!(said, json!({"uid": "u1", "allowed": true}));
    let empty = json!({"spec": {"devices": null}});
    assert_eq!(
        response(&review(
            "resourceclaims",
            "v1",
            "CREATE",
            empty,
            Value::Null
        ))["allowed"],
        true
    );
}

/// A finalizer must come off an object that was stored before there was a webhook.
#[test]
fn regression_stored_parameters_do_not_block_updates() {
    let wrong = claim(&[config(DRIVER, json!({}))]);
    let allowed = |operation, object: &Value, old: &Value| {
        response(&review(
            "resourceclaims",
            "v1",
            operation,
            object.clone(),
            old.clone(),
        ))["allowed"]
            == true
    };
    assert!(!allowed("CREATE", &wrong, &Value::Null));
    assert!(allowed("UPDATE", &wrong, &wrong));
    assert!(!allowed("UPDATE", &wrong, &claim(&[])));
    assert!(!allowed(
        "UPDATE",
        &wrong,
        &claim(&[config("other.example.com", json!({}))])
    ));
    assert!(allowed("DELETE", &Value::Null, &wrong));
    let mut status = review("resourceclaims", "v1", "UPDATE", wrong, Value::Null);
    status["request"]["subResource"] = json!("status");
    assert_eq!(response(&status)["allowed"], true);
}

#[test]
fn what_another_driver_takes_is_not_looked_at() {
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    let with = |driver: &str| {
        let claim = claim(&[config(driver, json!("DEEP"))]);
        let review = review("resourceclaims", "v1", "CREATE", claim, Value::Null);
        let body = review.to_string().replace("\"DEEP\"", &deep);
        super::review::answer(&checks(), body.as_bytes()).unwrap()["response"].clone()
    };
    assert_eq!(with("other.example.com")["allowed"], true);
    let said = with(DRIVER);
    assert_eq!(said["allowed"], false);
    assert!(
        said["status"]["message"]
            .as_str()
            .unwrap()
            .contains("recursion limit"),
        "{said}"
    );
    let long = claim(&[config(DRIVER, json!({"note": "x".repeat(100_000)}))]);
    let said = response(&review("resourceclaims", "v1", "CREATE", long, Value::Null));
    assert!(
        said["status"]["message"]
            .as_str()
            .unwrap()
            .ends_with("longer than 65536 bytes"),
        "{said}"
    );
    let quoted = claim(&[config(DRIVER, json!({"note": "é".repeat(5_000)}))]);
    let said = response(&review(
        "resourceclaims",
        "v1",
        "CREATE",
        quoted,
        Value::Null,
    ));
    assert!(said.to_string().len() < 6_000, "{said}");
}

#[test]
fn what_is_no_review_is_not_allowed() {
    for (resource, version) in [
        ("pods", "v1"),
        ("resourceclaims", "v2"),
        ("resourceslices", "v1"),
    ] {
        let said = response(&review(
            resource,
            version,
            "CREATE",
            claim(&[]),
            Value::Null,
        ));
        assert_eq!(
            (&said["allowed"], &said["status"]["code"]),
            (&json!(false), &json!(400)),
            "{said}"
        );
    }
    let shape = response(&review(
        "resourceclaims",
        "v1",
        "CREATE",
        json!({"spec": 1}),
        Value::Null,
    ));
    assert_eq!(shape["status"]["reason"], "BadRequest");
    for (body, reason) in [
        ("{", "EOF while parsing"),
        (
            r#"{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}"#,
            "unsupported group version kind",
        ),
        (
            r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}"#,
            "it has no request",
        ),
    ] {
        let error = super::review::answer(&checks(), body.as_bytes()).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
}

/// A webhook that serves, and a client that trusts `authority`.
struct Served {
    directory: tempfile::TempDir,
    authority: Authority,
    address: SocketAddr,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

fn issue(authority: &Authority, directory: &Path, name: &str) {
    let address = [127, 0, 0, 1].into();
    let identity = authority
        .server(name, &[format!("{name}.default.svc")], &[address])
        .unwrap();
    std::fs::write(directory.join("tls.key"), identity.key).unwrap();
    std::fs::write(directory.join("tls.crt"), identity.certificate).unwrap();
}

async fn serve() -> Served {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::generate("ca").unwrap();
    issue(&authority, directory.path(), "hook");
    let (chain, key) = (
        directory.path().join("tls.crt"),
        directory.path().join("tls.key"),
    );
    let webhook = Webhook::new().driver(DRIVER, parse).certificate(chain, key);
    let server = webhook
        .address(([127, 0, 0, 1], 0).into())
        .start()
        .await
        .unwrap();
    let (address, stop) = (server.address(), CancellationToken::new());
    let task = tokio::spawn(server.serve_until(stop.clone().cancelled_owned()));
    Served {
        directory,
        authority,
        address,
        stop,
        task,
    }
}

impl Served {
    /// A connection to the server by one of the names of its certificate.
    async fn dial(&self, name: &str) -> Result<TlsStream<TcpStream>, String> {
        let mut roots = rustls::RootCertStore::empty();
        let pem = self.authority.certificate();
        roots
            .add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from(format!("{name}.default.svc")).unwrap();
        let stream = TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await;
        stream.map_err(|error| error.to_string())
    }

    async fn connect<B>(&self, name: &str) -> Result<http1::SendRequest<B>, String>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let stream = self.dial(name).await?;
        let (client, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Ok(client)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        kind: &str,
        body: impl Into<Bytes>,
    ) -> (StatusCode, String) {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind);
        let request = request.body(Full::new(body.into())).unwrap();
        let answer = self
            .connect("hook")
            .await
            .unwrap()
            .send_request(request)
            .await
            .unwrap();
        let (head, body) = answer.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (head.status, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn review(&self, parameters: Value) -> (StatusCode, String) {
        let claim = claim(&[config(DRIVER, parameters)]);
        let review = review("resourceclaims", "v1", "CREATE", claim, Value::Null);
        self.send(Method::POST, PATH, "application/json", review.to_string())
            .await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reviews_are_answered_over_tls() {
    let served = serve().await;
    for path in ["/healthz", "/livez", "/readyz"] {
        assert_eq!(
            served.send(Method::GET, path, "", "").await,
            (StatusCode::OK, "ok\n".into())
        );
    }
    let (code, body) = served.review(json!({"brightness": 3})).await;
    assert_eq!(code, StatusCode::OK);
    assert_eq!(
        serde_json::from_str::<Value>(&body).unwrap()["response"]["allowed"],
        true
    );
    assert!(
        served
            .review(json!({}))
            .await
            .1
            .contains(r#""allowed":false"#)
    );
    for (method, path, kind, code) in [
        (Method::GET, PATH, "", 405),
        (Method::POST, "/healthz", "", 404),
        (Method::GET, "/", "", 404),
        (Method::POST, PATH, "text/yaml", 415),
        (Method::POST, PATH, "application/json; charset=utf-8", 400),
    ] {
        assert_eq!(
            served.send(method, path, kind, "{").await.0,
            code,
            "{path} {kind}"
        );
    }
    // A driver's fault is not an answer: the failure policy decides.
    assert_eq!(served.review(json!({"panic": true})).await.0, 500);
    assert_eq!(served.review(json!({"brightness": 3})).await.0, 200);
    served.stop.cancel();
    tokio::time::timeout(Duration::from_secs(60), served.task)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_are_refused_and_not_kept() {
    let served = serve().await;
    let large = Bytes::from(vec![b' '; 5 << 20]);
    // The server answers before it has read everything, and a client may see that as a broken connection.
    let mut client = served.connect("hook").await.unwrap();
    let request = http::Request::post(PATH).header("content-type", "application/json");
    let answer = client
        .send_request(request.body(Full::new(large)).unwrap())
        .await;
    assert!(answer.map_or(true, |answer| answer.status() == 413));
    // Without a length.
    let mut client = served.connect("hook").await.unwrap();
    let piece = || Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from(vec![b' '; 1 << 20])));
    let body = StreamBody::new(futures::stream::iter((0..8).map(move |_| piece())));
    let request = http::Request::post(PATH).header("content-type", "application/json");
    let answer = client.send_request(request.body(body).unwrap()).await;
    assert!(answer.map_or(true, |answer| answer.status() == 413));
    assert_eq!(served.review(json!({"brightness": 3})).await.0, 200);
}

/// Reads until the text is there.
async fn read_until(stream: &mut TlsStream<TcpStream>, wanted: &str) {
    let mut got = Vec::new();
    let read = async {
        while !String::from_utf8_lossy(&got).contains(wanted) {
            assert!(stream.read_buf(&mut got).await.unwrap() > 0, "{got:?}");
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), read).await;
    waited.unwrap_or_else(|_| panic!("no {wanted:?}"));
}

/// Sixteen clients that sent their bodies slowly had all places: no other review was answered.
#[tokio::test(flavor = "multi_thread")]
async fn regression_slow_bodies_do_not_block_other_reviews() {
    let served = serve().await;
    let mut slow = Vec::new();
    for sent in [10, 100_000] {
        for _ in 0..20 {
            let mut stream = served.dial("hook").await.unwrap();
            let head = format!(
                "POST {PATH} HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n\
                 content-length: 200000\r\nexpect: 100-continue\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            // The server reads the body now.
            read_until(&mut stream, "100 Continue").await;
            // On a busy machine the time for the body may be over already.
            let _ = stream.write_all(&vec![b' '; sent]).await;
            let _ = stream.flush().await;
            slow.push(stream);
        }
    }
    assert_eq!(served.review(json!({"brightness": 3})).await.0, 200);
    for stream in &mut slow[..20] {
        read_until(stream, "HTTP/1.1 408").await;
    }
    assert_eq!(served.review(json!({"brightness": 3})).await.0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_certificate_is_used_and_a_broken_one_is_not() {
    let served = serve().await;
    let directory = served.directory.path();
    assert!(served.connect::<Full<Bytes>>("new").await.is_err());
    // Half of a renewal: the key does not fit.
    std::fs::write(directory.join("tls.key"), "nothing").unwrap();
    assert!(served.connect::<Full<Bytes>>("hook").await.is_ok());
    issue(&served.authority, directory, "new");
    assert!(served.connect::<Full<Bytes>>("new").await.is_ok());
    assert!(served.connect::<Full<Bytes>>("hook").await.is_err());
    // As Kubernetes replaces the files of a secret: a link to another directory.
    let next = directory.join("next");
    std::fs::create_dir(&next).unwrap();
    issue(&served.authority, &next, "third");
    for name in ["tls.key", "tls.crt"] {
        std::os::unix::fs::symlink(next.join(name), directory.join("link")).unwrap();
        std::fs::rename(directory.join("link"), directory.join(name)).unwrap();
    }
    assert!(served.connect::<Full<Bytes>>("third").await.is_ok());
    std::fs::remove_file(directory.join("tls.crt")).unwrap();
    assert!(served.connect::<Full<Bytes>>("third").await.is_ok());
}

#[tokio::test]
async fn a_webhook_without_what_it_needs_does_not_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("none.pem");
    let start = async |webhook: Webhook| webhook.start().await.unwrap_err().to_string();
    assert!(start(Webhook::new()).await.contains("Webhook::driver"));
    let webhook = || Webhook::new().driver(DRIVER, parse);
    assert!(start(webhook()).await.contains("Webhook::certificate"));
    let error = start(webhook().certificate(&path, &path)).await;
    assert!(error.contains("none.pem"), "{error}");
    std::fs::write(&path, "").unwrap();
    let error = start(webhook().certificate(&path, &path)).await;
    assert!(error.contains("none.pem"), "{error}");
}
