//! Webhooks that fail, lie, or take too long: nothing is allowed, and the server continues.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::admin;

fn response(code: u16, body: impl Into<Bytes>) -> Option<(u16, String, Bytes)> {
    Some((code, String::new(), body.into()))
}

/// A request is refused with this error, whatever the failure policy is.
async fn fails(server: &Server, hook: &Hook, cluster: &str, timeout: &str, error: &str) {
    let kubeconfig = hook.kubeconfig_of(cluster);
    let (send, attributes) = (
        async || get(server, ann(), PODS).await,
        json!({"user": "ann", "resourceAttributes": {"verb": "get", "resource": "pods"}}),
    );
    let initial = ReloadableConfig::Authorization {
        authorizers: Vec::new(),
    };
    for policy in ["NoOpinion", "Deny"] {
        let alone = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n\
             - {{type: Webhook, name: hook, webhook: {{timeout: {timeout}, failurePolicy: {policy}, subjectAccessReviewVersion: v1,\n    \
             connectionInfo: {{type: KubeConfigFile, kubeConfigFile: {}}}}}}}\n",
            kubeconfig.display()
        );
        server.reload(&initial, alone.as_bytes()).await.unwrap();
        // Also the second time: an error is not kept.
        for _ in 0..2 {
            let (code, message) = send().await;
            assert_eq!(code, 500, "{error}: {message}");
            assert!(message.contains(error), "{error}: {message}");
            assert!(message.len() < 4096, "{}", message.len());
        }
        assert_eq!(get(server, User::admin(), PODS).await.0, 200);
        let (_, body) = admin(server, "POST", ACCESS, json!({"spec": attributes})).await;
        let told = body["status"]["evaluationError"].as_str();
        assert!(told.unwrap_or_default().contains(error), "{body}");
        assert_eq!(body["status"]["allowed"], false);
        assert_eq!(body["status"]["denied"] == true, policy == "Deny", "{body}");
        // The next one is asked only if a failure is no opinion.
        let followed = format!("{alone}- {{type: AlwaysAllow, name: alwaysallow}}\n");
        server.reload(&initial, followed.as_bytes()).await.unwrap();
        let expected = if policy == "Deny" { 500 } else { 200 };
        assert_eq!(send().await.0, expected, "{error}");
    }
}

#[tokio::test]
async fn answers_that_are_no_reviews_allow_nothing() {
    let body = Arc::new(Mutex::new(Bytes::new()));
    let reply = {
        let body = body.clone();
        move |_: &Value| response(200, body.lock().clone())
    };
    let hook = Hook::start(Box::new(reply)).await;
    let server = server(vec![]).await;
    let allowed = json!({"allowed": true});
    let of = |kind: &str, version: &str| {
        let review = json!({"kind": kind, "apiVersion": version, "status": allowed});
        review.to_string()
    };
    let version = "authorization.k8s.io/v1";
    let array = json!(["SubjectAccessReview", version, allowed]).to_string();
    let deep = format!("{{\"status\":{}", "[".repeat(100_000));
    let huge = format!(
        "{{\"pad\":\"{}\",\"status\":{allowed}}}",
        "x".repeat(4 << 20)
    );
    for (text, error) in [
        ("error response".to_owned(), "json parse error"),
        (String::new(), "json parse error"),
        (array, "json parse error"),
        (deep, "json parse error"),
        (huge, "json parse error"),
        (
            json!({"status": {"allowed": "yes"}}).to_string(),
            "json parse error",
        ),
        (
            json!({"status": [true]}).to_string(),
            "the status is no object",
        ),
        (
            of("TokenReview", version),
            "expected kind \"SubjectAccessReview\"",
        ),
        (
            of("SubjectAccessReview", "authorization.k8s.io/v1beta1"),
            "expected apiVersion",
        ),
        (of(&"x".repeat(1 << 20), "v1"), "expected kind"),
    ] {
        *body.lock() = text.into();
        fails(&server, &hook, &hook.cluster(CA), "20s", error).await;
    }
}

#[tokio::test]
async fn refusals_and_redirects_allow_nothing() {
    let other = Hook::start(Box::new(|_| status(&json!({"allowed": true})))).await;
    let place = format!("https://127.0.0.1:{}/", other.port);
    let code = Arc::new(Mutex::new(0));
    let reply = {
        let code = code.clone();
        let allowed = json!({"status": {"allowed": true}}).to_string();
        move |_: &Value| Some((*code.lock(), place.clone(), allowed.clone().into()))
    };
    let hook = Hook::start(Box::new(reply)).await;
    let server = server(vec![]).await;
    for (number, error) in [
        (
            401,
            "the server has asked for the client to provide credentials",
        ),
        (404, "the server could not find the requested resource"),
        (503, "the server is currently unable to handle the request"),
        (301, "the server responded with the status code 301"),
        (302, "the server responded with the status code 302"),
        (307, "the server responded with the status code 307"),
        (308, "the server responded with the status code 308"),
    ] {
        *code.lock() = number;
        fails(&server, &hook, &hook.cluster(CA), "20s", error).await;
    }
    assert_eq!(other.count(), 0);
}

#[tokio::test]
async fn webhooks_that_are_not_reached_or_not_trusted_allow_nothing() {
    let hook = Hook::start(Box::new(|_| status(&json!({"allowed": true})))).await;
    let server = server(vec![]).await;
    // Nothing listens there any more.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let unreachable = format!("{{server: 'https://127.0.0.1:{port}/'}}");
    let misnamed = format!("{CA}, tls-server-name: other.example.com");
    for (cluster, error) in [
        (unreachable, "connection refused"),
        // The metadata service of a cloud is not asked, whatever a kubeconfig says.
        (
            "{server: 'http://169.254.169.254/'}".to_owned(),
            "address not allowed",
        ),
        (hook.cluster(""), "certificate signed by unknown authority"),
        (
            hook.cluster(&misnamed),
            "certificate is not valid for any names",
        ),
    ] {
        fails(&server, &hook, &cluster, "20s", error).await;
    }
    assert_eq!(hook.count(), 0);
}

#[tokio::test]
async fn a_webhook_that_never_answers_is_left() {
    let hook = Hook::start(Box::new(|_| None)).await;
    let server = server(vec![]).await;
    fails(
        &server,
        &hook,
        &hook.cluster(CA),
        "50ms",
        "context deadline exceeded",
    )
    .await;
}

#[tokio::test]
async fn allowed_and_denied_at_once_is_denied() {
    let both = |_: &Value| status(&json!({"allowed": true, "denied": true}));
    let hook = Hook::start(Box::new(both)).await;
    let server = server(vec![
        webhook(hook.options()),
        AuthorizationMode::AlwaysAllow,
    ])
    .await;
    let (code, message) = get(&server, ann(), PODS).await;
    assert_eq!(code, 500);
    assert!(
        message.contains("returned both allow and deny response"),
        "{message}"
    );
}

/// A reason is told to the client, and kept.
#[tokio::test]
async fn a_long_reason_is_told_in_part() {
    let long = |_: &Value| status(&json!({"allowed": false, "reason": "x".repeat(1 << 20)}));
    let hook = Hook::start(Box::new(long)).await;
    let server = server(vec![webhook(hook.options())]).await;
    let (code, message) = get(&server, ann(), PODS).await;
    assert_eq!(code, 403);
    assert!(message.len() < 4096, "{}", message.len());
}

/// As upstream, an error of the webhook's server is tried again.
#[tokio::test]
async fn a_failure_in_passing_is_tried_again() {
    let calls = AtomicUsize::new(0);
    let reply = move |_: &Value| match calls.fetch_add(1, Ordering::Relaxed) {
        0 => response(500, "starting"),
        _ => status(&json!({"allowed": true})),
    };
    let hook = Hook::start(Box::new(reply)).await;
    let server = server(vec![webhook(hook.options())]).await;
    assert_eq!(get(&server, ann(), PODS).await.0, 200);
    assert_eq!(hook.count(), 2);
}

/// The file of a token is read for each call.
#[tokio::test]
async fn a_token_in_a_file_is_sent_as_it_is_now() {
    let hook = Hook::start(Box::new(|_| status(&json!({"allowed": true})))).await;
    let file = hook.directory.path().join("token");
    let mut options = hook.options();
    options.kubeconfig.credential = allot_apiserver::config::Credential::TokenFile(file.clone());
    let server = server(vec![webhook(options)]).await;
    let error = std::fs::metadata(&file).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(get(&server, ann(), PODS).await.0, 500);
    for token in ["first", "second\n"] {
        std::fs::write(&file, token).unwrap();
        assert_eq!(get(&server, ann(), PODS).await.0, 200);
        assert_eq!(
            *hook.authorization.lock(),
            format!("Bearer {}", token.trim())
        );
    }
    std::fs::write(&file, "two\nlines").unwrap();
    assert_eq!(get(&server, ann(), PODS).await.0, 500);
}
