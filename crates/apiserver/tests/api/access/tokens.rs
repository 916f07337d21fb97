//! Tokens of service accounts end with what they are bound to.

use std::sync::Arc;

use allot_apiserver::audit::{Audit, Log, Policy, Rotation};
use allot_apiserver::{Config, Server};
use allot_store::{Backend, Draft, Embedded, Expect, Options, Write};
use bytes::Bytes;
use http_body_util::Empty;
use serde_json::{Value, json};

use crate::admin;

const CORE: &str = "/api/v1/namespaces/default";

/// A server and what it stores.
async fn server() -> (Server, Arc<Embedded>) {
    let backend = Arc::new(Embedded::in_memory(Options::default()));
    let config = Config {
        disabled_admission: vec!["ServiceAccount".to_owned()],
        ..Config::default()
    };
    let server = Server::new(backend.clone(), config);
    server.bootstrap().await.unwrap();
    (server, backend)
}

/// What the server says to a token: the code of a review of oneself.
async fn code(server: &Server, token: &str) -> u16 {
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let request = http::Request::post(path)
        .header("authorization", format!("Bearer {token}"))
        .header("content-type", "application/json");
    let body = http_body_util::Full::new(Bytes::from_static(b"{}"));
    let response = server.handle(request.body(body).unwrap(), None);
    response.await.status().as_u16()
}

/// What a review says of a token.
async fn error(server: &Server, token: &str) -> String {
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let (code, review) = admin(server, "POST", path, json!({"spec": {"token": token}})).await;
    assert_eq!(code, 201, "{review}");
    review["status"]["error"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

async fn create(server: &Server, plural: &str, object: Value) {
    let (code, made) = admin(server, "POST", &format!("{CORE}/{plural}"), object).await;
    assert_eq!(code, 201, "{made}");
}

async fn token(server: &Server, bound_to: Value) -> String {
    let request = json!({"spec": {"boundObjectRef": bound_to}});
    let (code, made) = admin(
        server,
        "POST",
        &format!("{CORE}/serviceaccounts/app/token"),
        request,
    )
    .await;
    assert_eq!(code, 201, "{made}");
    made["status"]["token"].as_str().unwrap().to_owned()
}

/// Marks a stored object as deleted so many seconds ago.
async fn backdate_deletion(backend: &Embedded, collection: &str, key: &str, seconds: i64) {
    let entry = backend.get(collection, key).await.unwrap().unwrap();
    let mut object: Value = serde_json::from_slice(&entry.value).unwrap();
    let then = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(seconds);
    object["metadata"]["deletionTimestamp"] = then.to_string().into();
    object["metadata"]["resourceVersion"] = "@".into();
    let text = object.to_string();
    let (head, tail) = text.split_once('@').unwrap();
    let draft = Draft::new(head.as_bytes(), tail.as_bytes());
    let write = Write::put(
        collection,
        entry.key.clone(),
        Expect::Revision(entry.revision),
        draft,
    );
    backend.commit(write).await.unwrap();
}

/// A finalizer keeps the object, and must not keep the tokens.
#[tokio::test]
async fn what_is_deleted_and_kept_by_a_finalizer_ends_its_tokens() {
    let (server, backend) = server().await;
    let kept = |name: &str| json!({"metadata": {"name": name, "finalizers": ["example.com/f"]}});
    create(&server, "serviceaccounts", kept("app")).await;
    create(&server, "secrets", kept("bound")).await;
    let mut pod = kept("bound");
    pod["spec"] = json!({"serviceAccountName": "app", "containers": [{"name": "c", "image": "i"}]});
    create(&server, "pods", pod).await;
    let reference = |kind: &str| json!({"kind": kind, "apiVersion": "v1", "name": "bound"});
    for (kind, collection, key, error_text) in [
        (
            "Pod",
            "pods",
            "default/bound",
            "service account token has been invalidated",
        ),
        (
            "Secret",
            "secrets",
            "default/bound",
            "service account token has been invalidated",
        ),
        (
            "",
            "serviceaccounts",
            "default/app",
            "service account default/app has been deleted",
        ),
    ] {
        let bound_to = if kind.is_empty() {
            Value::Null
        } else {
            reference(kind)
        };
        let token = token(&server, bound_to).await;
        assert_eq!(code(&server, &token).await, 201, "{collection}");
        // It has a minute to finish.
        backdate_deletion(&backend, collection, key, 30).await;
        assert_eq!(code(&server, &token).await, 201, "{collection}");
        backdate_deletion(&backend, collection, key, 90).await;
        assert_eq!(code(&server, &token).await, 401, "{collection}");
        let said = error(&server, &token).await;
        assert!(said.contains(error_text), "{said}");
    }
}

#[tokio::test]
async fn an_object_that_was_made_again_is_another_one() {
    let (server, _) = server().await;
    let named = |name: &str| json!({"metadata": {"name": name}});
    create(&server, "serviceaccounts", named("app")).await;
    create(&server, "secrets", named("bound")).await;
    let reference = json!({"kind": "Secret", "apiVersion": "v1", "name": "bound"});
    let bound = token(&server, reference).await;
    let plain = token(&server, Value::Null).await;
    admin(
        &server,
        "DELETE",
        &format!("{CORE}/secrets/bound"),
        Value::Null,
    )
    .await;
    assert_eq!(code(&server, &bound).await, 401);
    create(&server, "secrets", named("bound")).await;
    let said = error(&server, &bound).await;
    assert!(
        said.contains("does not match service account secret ref claim"),
        "{said}"
    );
    assert_eq!(code(&server, &plain).await, 201);
    admin(
        &server,
        "DELETE",
        &format!("{CORE}/serviceaccounts/app"),
        Value::Null,
    )
    .await;
    let said = error(&server, &plain).await;
    assert!(said.contains("serviceaccounts \"app\" not found"), "{said}");
    create(&server, "serviceaccounts", named("app")).await;
    assert_eq!(code(&server, &plain).await, 401);
    let said = error(&server, &plain).await;
    assert!(said.contains("does not match claim"), "{said}");
}

/// A client without token is anonymous, not rejected.
#[tokio::test]
async fn no_token_is_no_wrong_token() {
    let (server, _) = server().await;
    let request = http::Request::get("/version")
        .body(Empty::<Bytes>::new())
        .unwrap();
    assert_eq!(server.handle(request, None).await.status(), 200);
    assert_eq!(code(&server, "no-token").await, 401);
}

/// An administrator ends the token in a secret by a label or by another token; the token itself goes on for years.
#[tokio::test]
async fn regression_the_token_in_a_secret_can_be_ended() {
    let (server, _) = server().await;
    let account = json!({"metadata": {"name": "app"}});
    create(&server, "serviceaccounts", account).await;
    let secret = json!({"metadata": {"name": "held", "annotations": {"kubernetes.io/service-account.name": "app"}},
        "type": "kubernetes.io/service-account-token"});
    create(&server, "secrets", secret).await;
    let to = json!({"apiVersion": "v1", "kind": "Secret", "name": "held"});
    let short = token(&server, to.clone()).await;
    let request = json!({"spec": {"boundObjectRef": to, "expirationSeconds": 1_i64 << 32}});
    let path = format!("{CORE}/serviceaccounts/app/token");
    let (code_of_token, made) = admin(&server, "POST", &path, request).await;
    assert_eq!(code_of_token, 201, "{made}");
    let lasting = made["status"]["token"].as_str().unwrap();
    let path = format!("{CORE}/secrets/held");
    let change = async |patch: Value| {
        let (code, made) = admin(&server, "PATCH", &path, patch).await;
        assert_eq!(code, 200, "{made}");
        made
    };
    change(json!({"stringData": {"token": lasting}})).await;
    assert_eq!(code(&server, lasting).await, 201);
    // Its use is noted.
    let today = jiff::Timestamp::now().to_string()[..10].to_owned();
    let (_, held) = admin(&server, "GET", &path, json!(null)).await;
    let label = |name: &str, value: Value| json!({"metadata": {"labels": {name: value}}});
    let last_used = "kubernetes.io/legacy-token-last-used";
    let noted = &held["metadata"]["labels"][last_used];
    assert!(noted.as_str().is_some_and(|day| *day >= *today), "{held}");

    let invalid = "kubernetes.io/legacy-token-invalid-since";
    change(label(invalid, json!("2026-01-01"))).await;
    assert_eq!(code(&server, lasting).await, 401);
    let why = error(&server, lasting).await;
    let text = "the token in secret default/held for service account default/app has been marked invalid. Use tokens \
        from the TokenRequest API or manually created secret-based tokens, or remove the \
        'kubernetes.io/legacy-token-invalid-since' label from the secret to temporarily allow use of this token";
    assert!(why.contains(text), "{why}");
    // Others that end with the secret have been requested.
    assert_eq!(code(&server, &short).await, 201);
    change(label(invalid, Value::Null)).await;
    assert_eq!(code(&server, lasting).await, 201);
    change(json!({"stringData": {"token": "another"}})).await;
    assert_eq!(code(&server, lasting).await, 401);
    assert_eq!(code(&server, &short).await, 201);
}

/// Bootstrap tokens are those of secrets in one namespace, as long as these are there, if the server wants any.
#[tokio::test]
async fn bootstrap_tokens_are_those_in_secrets() {
    let token = "abcdef.0123456789abcdef";
    let secret = json!({
        "metadata": {"name": "bootstrap-token-abcdef"}, "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
            "auth-extra-groups": "system:bootstrappers:team",
        },
    });
    for bootstrap_tokens in [false, true] {
        let config = Config {
            bootstrap_tokens,
            ..Config::default()
        };
        let backend = Arc::new(Embedded::in_memory(Options::default()));
        let server = Server::new(backend, config);
        server.bootstrap().await.unwrap();
        let secrets = |namespace| format!("/api/v1/namespaces/{namespace}/secrets");
        for (namespace, expected) in [("default", 401), ("kube-system", 201)] {
            let (made, answer) = admin(&server, "POST", &secrets(namespace), secret.clone()).await;
            assert_eq!(made, 201, "{answer}");
            let expected = if bootstrap_tokens { expected } else { 401 };
            assert_eq!(code(&server, token).await, expected, "{namespace}");
        }
        for other in [
            "abcdef.0123456789abcdeg",
            "abcdeg.0123456789abcdef",
            "abcdef",
            "abcdef.",
        ] {
            assert_eq!(code(&server, other).await, 401, "{other}");
        }
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let review = |audiences: Value| json!({"spec": {"token": token, "audiences": audiences}});
        let (_, told) = admin(&server, "POST", path, review(json!([]))).await;
        let (_, foreign) = admin(&server, "POST", path, review(json!(["other"]))).await;
        assert_ne!(foreign["status"]["authenticated"], true, "{foreign}");
        if bootstrap_tokens {
            let groups = [
                "system:bootstrappers",
                "system:bootstrappers:team",
                "system:authenticated",
            ];
            let user = json!({"username": "system:bootstrap:abcdef", "groups": groups});
            assert_eq!(told["status"]["user"], user);
        }
        let one = format!("{}/bootstrap-token-abcdef", secrets("kube-system"));
        let (gone, answer) = admin(&server, "DELETE", &one, Value::Null).await;
        assert_eq!(gone, 200, "{answer}");
        assert_eq!(code(&server, token).await, 401);
    }
}

/// The use of tokens that last longer than they should is seen in the audit log, by the client and in the metrics.
#[tokio::test]
async fn the_use_of_lasting_tokens_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("log");
    let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n";
    let log = Log::open(&file, Rotation::default()).unwrap();
    let audit = Audit::new(Policy::parse(policy).unwrap(), log);
    let config = Config {
        disabled_admission: vec!["ServiceAccount".to_owned()],
        audit: Some(audit.clone()),
        ..Config::default()
    };
    let server = Server::new(Arc::new(Embedded::in_memory(Options::default())), config);
    server.bootstrap().await.unwrap();
    let account = json!({"metadata": {"name": "app"}});
    create(&server, "serviceaccounts", account).await;
    let secret = json!({"metadata": {"name": "held", "annotations": {"kubernetes.io/service-account.name": "app"}},
        "type": "kubernetes.io/service-account-token"});
    create(&server, "secrets", secret).await;
    let to = json!({"apiVersion": "v1", "kind": "Secret", "name": "held"});
    let short = token(&server, to.clone()).await;
    let request = json!({"spec": {"boundObjectRef": to, "expirationSeconds": 1_i64 << 32}});
    let path = format!("{CORE}/serviceaccounts/app/token");
    let (_, made) = admin(&server, "POST", &path, request).await;
    let lasting = made["status"]["token"].as_str().unwrap().to_owned();
    let change = async |kind: &str, name: &str, patch: Value| {
        let path = format!("{CORE}/{kind}/{name}");
        let (code, made) = admin(&server, "PATCH", &path, patch).await;
        assert_eq!(code, 200, "{made}");
    };
    change("secrets", "held", json!({"stringData": {"token": lasting}})).await;
    let check = async |token: &str, expected: u16, notes: Value| {
        assert_eq!(code(&server, token).await, expected);
        audit.flush();
        let text = std::fs::read_to_string(&file).unwrap();
        let event: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        let mut annotations = event["annotations"].clone();
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.retain(|key, _| key.starts_with("authentication.k8s.io/"));
        }
        assert_eq!(annotations, notes, "{event}");
    };
    let subject = "system:serviceaccount:default:app";
    let (legacy, manual) = (
        "authentication.k8s.io/legacy-token",
        "authentication.k8s.io/legacy-token-manual-secret",
    );
    check(&short, 201, json!({})).await;
    check(&lasting, 201, json!({legacy: subject, manual: "held"})).await;
    // The account names the secret, as controllers wrote it before 1.24.
    change(
        "serviceaccounts",
        "app",
        json!({"secrets": [{"name": "held"}]}),
    )
    .await;
    let automatic = "authentication.k8s.io/legacy-token-autogenerated-secret";
    check(&lasting, 201, json!({legacy: subject, automatic: "held"})).await;
    let label = json!({"kubernetes.io/legacy-token-invalid-since": "2026-01-01"});
    change("secrets", "held", json!({"metadata": {"labels": label}})).await;
    let invalid = "authentication.k8s.io/legacy-token-invalidated";
    check(
        &lasting,
        401,
        json!({legacy: subject, invalid: "held/default"}),
    )
    .await;
    let (_, numbers) = admin(&server, "GET", "/metrics", Value::Null).await;
    let numbers = numbers.as_str().unwrap();
    for line in [
        "serviceaccount_legacy_tokens_total 3",
        "serviceaccount_legacy_manual_token_uses_total 1",
        "serviceaccount_legacy_auto_token_uses_total 1",
        "serviceaccount_invalid_legacy_auto_token_uses_total 1",
        "serviceaccount_stale_tokens_total 0",
    ] {
        assert!(numbers.lines().any(|known| known == line), "{line}");
    }
}
