//! How admission webhooks are reached, which certificates they may have, and what happens if they do not answer.

use std::sync::Arc;

use allot_apiserver::Server;
use allot_apiserver::config::Config;
use allot_apiserver::pki::Identity;
use allot_store::{Embedded, Options};
use serde_json::{Value, json};

use super::{Hooks, MUTATING, VALIDATING, install, judge, map, ready_endpoint, webhook};
use crate::admin;

/// As `openssl req -x509` makes them: the webhook's certificate is the authority that it is trusted by.
#[tokio::test]
async fn regression_a_certificate_that_signs_itself_is_good_for_its_names() {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap().pem();
    let identity = Identity {
        certificate: certificate.clone(),
        key: key.serialize_pem(),
    };
    let hooks = Hooks::with_certificate(&identity, &certificate, judge).await;
    let server = Server::in_memory().await.unwrap();
    let ok = webhook("w", hooks.url("/ok"), json!({}));
    install(&server, VALIDATING, "w", &[ok]).await;
    assert_eq!(map(&server, "a").await, (201, String::new()));
    let mut elsewhere = hooks.url("/ok");
    elsewhere["url"] = format!("https://localhost:{}/ok", hooks.port).into();
    install(
        &server,
        VALIDATING,
        "v",
        &[webhook("v", elsewhere, json!({}))],
    )
    .await;
    let (code, text) = map(&server, "a").await;
    assert!(
        code == 500 && text.contains("certificate is not valid for any names"),
        "{text}"
    );
}

#[tokio::test]
async fn what_a_webhook_does_not_answer_counts_as_it_wants() {
    let hooks = Hooks::start(judge).await;
    let stranger = Hooks::start(judge).await;
    let server = Server::in_memory().await.unwrap();
    // No server listens on the first port.
    let closed = 1;
    let port = hooks.port;
    let mut distrusted = hooks.url("/x");
    distrusted["caBundle"] = stranger.bundle.as_str().into();
    let seconds = |path: &str| if path == "/slow" { 1 } else { 10 };
    let post = |port: u16, path: &str, why: &str| {
        format!(
            "failed to call webhook: Post \"https://127.0.0.1:{port}{path}?timeout={}s\": {why}",
            seconds(path)
        )
    };
    for (client, why) in [
        (hooks.url("/broken"), "failed to call webhook: an error on the server (\"\\\"no\\\"\") has prevented the request from succeeding".to_owned()),
        (hooks.url("/missing"), "failed to call webhook: the server could not find the requested resource".to_owned()),
        (hooks.url("/silent"), "received invalid webhook response: webhook response was absent".to_owned()),
        (hooks.url("/slow"), post(port, "/slow", "context deadline exceeded")),
        (distrusted, post(port, "/x", "tls: failed to verify certificate: x509: certificate signed by unknown authority")),
        (
            json!({"url": format!("https://127.0.0.1:{closed}/"), "caBundle": hooks.bundle}),
            post(closed, "/", &format!("dial tcp 127.0.0.1:{closed}: connect: connection refused")),
        ),
        (
            json!({"service": {"namespace": "default", "name": "none"}, "caBundle": hooks.bundle}),
            "failed to call webhook: Post \"https://none.default.svc:443/?timeout=10s\": service \"none\" not found".to_owned(),
        ),
    ] {
        let path = if why.contains("/slow") { "/slow" } else { "" };
        for kind in [VALIDATING, MUTATING] {
            let asked = |policy: &str| {
                webhook("w", client.clone(), json!({"timeoutSeconds": seconds(path), "failurePolicy": policy}))
            };
            install(&server, kind, "w", &[asked("Fail")]).await;
            let text = format!("Internal error occurred: failed calling webhook \"w.example.com\": {why}");
            assert_eq!(map(&server, "a").await, (500, text));
            let installed = format!("{kind}/w");
            assert_eq!(admin(&server, "DELETE", &installed, Value::Null).await.0, 200);
            install(&server, kind, "w", &[asked("Ignore")]).await;
            assert_eq!(map(&server, "a").await.0, 201);
            assert_eq!(admin(&server, "DELETE", &installed, Value::Null).await.0, 200);
        }
    }
    let strange = webhook("w", hooks.url("/other"), json!({}));
    install(&server, VALIDATING, "w", &[strange]).await;
    let (code, text) = map(&server, "a").await;
    assert_eq!(code, 500);
    assert!(
        text.contains("received invalid webhook response: expected response.uid=\""),
        "{text}"
    );
}

#[tokio::test]
async fn a_service_leads_to_a_ready_endpoint() {
    let hooks = Hooks::start(judge).await;
    let backend = Arc::new(Embedded::in_memory(Options::default()));
    let server = Server::new(backend.clone(), Config::default());
    server.bootstrap().await.unwrap();
    let service =
        json!({"metadata": {"name": "hook"}, "spec": {"ports": [{"name": "https", "port": 443}]}});
    let path = "/api/v1/namespaces/default/services";
    assert_eq!(admin(&server, "POST", path, service).await.0, 201);
    let client = json!({
        "service": {"namespace": "default", "name": "hook", "path": "/check"}, "caBundle": hooks.bundle,
    });
    install(&server, VALIDATING, "w", &[webhook("w", client, json!({}))]).await;
    let (code, text) = map(&server, "why").await;
    assert_eq!(code, 500);
    assert!(
        text.ends_with("no endpoints available for service \"hook\""),
        "{text}"
    );
    ready_endpoint(&*backend, &hooks).await;
    assert_eq!(map(&server, "why").await.0, 409);
    assert_eq!(hooks.take_requests()[0].0, "/check?timeout=10s");
}

/// So many calls at once are so many connections, which a service spreads over its endpoints; all of them are kept.
#[tokio::test]
async fn calls_at_once_have_connections_of_their_own() {
    const CALLS: usize = 10;
    let hooks = Hooks::start(judge).await;
    let server = Server::in_memory().await.unwrap();
    let slow = webhook("w", hooks.url("/slow"), json!({"timeoutSeconds": 30}));
    install(&server, VALIDATING, "w", &[slow]).await;
    for round in 0..2 {
        let mut calls = tokio::task::JoinSet::new();
        for call in 0..CALLS {
            let server = server.clone();
            calls.spawn(async move { map(&server, &format!("m{call}")).await });
        }
        while hooks.asked.lock().len() < CALLS * (round + 1) {
            hooks.news.notified().await;
        }
        loop {
            // Ends the wait of one of them.
            hooks.release.notify_one();
            let Some(answer) = calls.join_next().await else {
                break;
            };
            assert_eq!(answer.unwrap(), (201, String::new()));
        }
        // One was released without a call that waits.
        hooks.release.notified().await;
        let connections = hooks.connections.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(connections, CALLS);
    }
}
