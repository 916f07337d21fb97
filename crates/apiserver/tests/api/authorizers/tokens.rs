//! Bearer tokens that a webhook reviews.

use allot_apiserver::config::{Anonymous, TokenWebhook};

use super::*;
use crate::admin;

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const OWN: &str = "https://kubernetes.default.svc";

/// Accepts the token `ann`, for the audience `other` the token `guest`, and fails for the token `odd`.
fn review_token(review: &Value) -> Option<(u16, String, Bytes)> {
    let user = |name: &str| json!({"username": name, "uid": "7", "groups": ["team"], "extra": {"k": ["v"]}});
    match review["spec"]["token"].as_str().unwrap_or_default() {
        "ann" => status(&json!({"authenticated": true, "user": user("ann")})),
        "guest" => {
            status(&json!({"authenticated": true, "user": user("guest"), "audiences": ["other"]}))
        }
        "odd" => status(&json!({"authenticated": false, "error": "at a loss"})),
        "root" => status(
            &json!({"authenticated": "yes", "user": {"username": "x", "groups": ["system:masters"]}}),
        ),
        "large" => status(
            &json!({"authenticated": true, "user": {"username": "x", "extra": {"k": ["x".repeat(1 << 20)]}}}),
        ),
        "hangs" => None,
        "moved" => Some((307, "https://127.0.0.1/".to_owned(), Bytes::new())),
        "huge" => Some((200, String::new(), vec![b'['; 4 << 20].into())),
        _ => status(&json!({"authenticated": false})),
    }
}

async fn server_with(hook: &Hook, version: ReviewVersion, ttl: Duration) -> Server {
    with_config(Config {
        token_webhook: Some(TokenWebhook {
            kubeconfig: Kubeconfig::read(&hook.kubeconfig()).unwrap(),
            version,
            ttl,
        }),
        authorization: vec![AuthorizationMode::AlwaysAllow],
        ..Config::default()
    })
    .await
}

/// The code of a request with a token.
async fn with_token(server: &Server, token: &str) -> u16 {
    let request = http::Request::get(PODS).header("authorization", format!("Bearer {token}"));
    let request = request.body(Full::new(Bytes::new())).unwrap();
    server.handle(request, None).await.status().as_u16()
}

async fn review(server: &Server, token: &str, audiences: &[&str]) -> Value {
    let spec = json!({"token": token, "audiences": audiences});
    let (code, body) = admin(server, "POST", REVIEWS, json!({"spec": spec})).await;
    assert_eq!(code, 201, "{body}");
    body["status"].clone()
}

#[tokio::test]
async fn tokens_that_a_webhook_knows_are_identities() {
    let hook = Hook::start(Box::new(review_token)).await;
    for (version, name) in [
        (ReviewVersion::V1, "v1"),
        (ReviewVersion::V1beta1, "v1beta1"),
    ] {
        let server = server_with(&hook, version, Duration::ZERO).await;
        assert_eq!(with_token(&server, "ann").await, 200);
        let asked = json!({
            "kind": "TokenReview", "apiVersion": format!("authentication.k8s.io/{name}"), "metadata": {},
            "spec": {"token": "ann", "audiences": [OWN]}, "status": {"user": {}},
        });
        assert_eq!(hook.last(), asked);
        let user = json!({
            "username": "ann", "uid": "7", "groups": ["team", "system:authenticated"], "extra": {"k": ["v"]},
        });
        let found = json!({"authenticated": true, "user": user, "audiences": [OWN]});
        assert_eq!(review(&server, "ann", &[]).await, found);
        // A token without audiences is for this server alone.
        let unknown = json!({"user": {}, "error": "invalid bearer token"});
        assert_eq!(review(&server, "ann", &["other"]).await, unknown);
        assert_eq!(hook.last()["spec"]["audiences"], json!(["other"]));
        assert_eq!(with_token(&server, "guest").await, 401);
        let guest = review(&server, "guest", &["x", "other"]).await;
        assert_eq!(
            (&guest["authenticated"], &guest["audiences"]),
            (&json!(true), &json!(["other"]))
        );
    }
}

#[tokio::test]
async fn what_a_webhook_does_not_know_or_garbles_is_no_identity() {
    let hook = Hook::start(Box::new(review_token)).await;
    let server = server_with(&hook, ReviewVersion::V1, HOUR).await;
    for (token, error) in [
        ("none", "invalid bearer token"),
        ("odd", "[invalid bearer token, at a loss]"),
        ("root", "json parse error"),
        (
            "large",
            "the webhook has named a user with too many attributes",
        ),
        ("moved", "the server responded with the status code 307"),
        ("huge", "json parse error"),
    ] {
        assert_eq!(with_token(&server, token).await, 401, "{token}");
        let status = review(&server, token, &[]).await;
        assert!(status["authenticated"].is_null(), "{status}");
        assert!(
            status["error"].as_str().unwrap_or_default().contains(error),
            "{status}"
        );
    }
    // One that hangs does not hold up the others.
    let waiting = with_token(&server, "hangs");
    tokio::select! {
        code = waiting => panic!("{code}"),
        code = with_token(&server, "ann") => assert_eq!(code, 200),
    }
}

/// A token that is good for one audience must not become good for another because its answer is kept.
#[tokio::test]
async fn answers_about_tokens_are_kept_by_audience() {
    let hook = Hook::start(Box::new(review_token)).await;
    let server = server_with(&hook, ReviewVersion::V1, HOUR).await;
    assert_eq!(
        review(&server, "guest", &["other"]).await["authenticated"],
        true
    );
    assert_eq!(with_token(&server, "guest").await, 401);
    let asked = hook.count();
    for _ in 0..2 {
        assert_eq!(
            review(&server, "guest", &["other"]).await["authenticated"],
            true
        );
        assert_eq!(with_token(&server, "guest").await, 401);
    }
    assert_eq!(hook.count(), asked);
    // What it could not find out is asked again.
    for _ in 0..2 {
        assert_eq!(with_token(&server, "odd").await, 401);
    }
    assert_eq!(hook.count(), asked + 2);
}

/// A condition on the path must not be passed by writing the path otherwise.
#[tokio::test]
async fn anonymous_requests_are_for_the_paths_of_the_configuration() {
    let server = with_config(Config {
        anonymous: Anonymous::At(vec!["/livez".to_owned()]),
        authorization: vec![AuthorizationMode::AlwaysAllow],
        ..Config::default()
    })
    .await;
    for (path, expected) in [
        ("/livez", 200),
        ("/livez?verbose", 200),
        ("/livez/", 401),
        ("/livez/ping", 401),
        ("/readyz", 401),
        ("/livez/../version", 401),
        ("/livez%2f..%2fversion", 401),
        ("//livez", 401),
        (PODS, 401),
    ] {
        let request = http::Request::get(path)
            .body(Full::new(Bytes::new()))
            .unwrap();
        let code = server.handle(request, None).await.status().as_u16();
        assert_eq!(code, expected, "{path}");
    }
    // Wrong credentials are not anonymous.
    let request = http::Request::get("/livez").header("authorization", "Bearer x");
    let request = request.body(Full::new(Bytes::new())).unwrap();
    assert_eq!(server.handle(request, None).await.status(), 401);
}
