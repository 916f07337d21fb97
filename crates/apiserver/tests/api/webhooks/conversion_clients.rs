//! How conversion webhooks are reached, and which reviews they speak.

use std::sync::Arc;

use allot_apiserver::{Config, Server};
use allot_store::{Embedded, Options};
use allot_testing::wait::PATIENCE;
use serde_json::{Value, json};

use super::conversion::{DEFINITIONS, NAME, convert, create, path, set_conversion};
use super::{Hooks, ready_endpoint};
use crate::admin;

async fn get(server: &Server, version: &str, name: &str) -> (u16, Value) {
    admin(server, "GET", &path(version, name), Value::Null).await
}

/// Converts like an old webhook: the response has no `apiVersion`, `kind` and UID.
fn convert_silently(path: &str, review: &Value) -> Option<(u16, Value)> {
    let (code, mut answer) = convert(path, review)?;
    for key in ["apiVersion", "kind"] {
        answer.as_object_mut().unwrap().remove(key);
    }
    answer["response"].as_object_mut().unwrap().remove("uid");
    Some((code, answer))
}

#[tokio::test]
async fn a_service_reference_leads_to_a_ready_endpoint() {
    let hooks = Hooks::start(convert).await;
    let backend = Arc::new(Embedded::in_memory(Options::default()));
    let server = Server::new(backend.clone(), Config::default());
    server.bootstrap().await.unwrap();
    let client = json!({
        "service": {"namespace": "default", "name": "hook", "path": "/convert", "port": 443},
        "caBundle": hooks.bundle,
    });
    set_conversion(&server, client, &["v1"]).await;
    assert_eq!(
        create(&server, "v1", "a", json!({"size": "3"})).await.0,
        201
    );
    let failed = async |why: &str| {
        let (code, answer) = get(&server, "v2", "a").await;
        let text = answer["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!(code, 500, "{answer}");
        assert!(
            text.starts_with("conversion webhook for example.com/v1, Kind=Thing failed: ")
                && text.ends_with(why),
            "{text}"
        );
    };
    failed("service \"hook\" not found").await;
    let service =
        json!({"metadata": {"name": "hook"}, "spec": {"ports": [{"name": "https", "port": 443}]}});
    let services = "/api/v1/namespaces/default/services";
    assert_eq!(admin(&server, "POST", services, service).await.0, 201);
    failed("no endpoints available for service \"hook\"").await;
    ready_endpoint(&*backend, &hooks).await;
    let (code, read) = get(&server, "v2", "a").await;
    assert_eq!((code, &read["spec"]), (200, &json!({"count": 3})), "{read}");
    assert_eq!(hooks.take_requests()[0].0, "/convert?timeout=30s");
    // A port that the service does not have.
    let other =
        json!({"spec": {"conversion": {"webhook": {"clientConfig": {"service": {"port": 444}}}}}});
    let named = format!("{DEFINITIONS}/{NAME}");
    assert_eq!(admin(&server, "PATCH", &named, other).await.0, 200);
    // What is at hand was made by the definition as it was before: no more, once the new one counts.
    let refused = async {
        while get(&server, "v2", "a").await.0 == 200 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, refused)
        .await
        .expect("the webhook is asked at the other port");
    failed("no service port 444 found for service \"hook\"").await;
}

#[tokio::test]
async fn the_first_review_that_both_know_is_spoken() {
    for (reviews, spoken) in [
        (&["v1beta1"][..], "v1beta1"),
        (&["v1beta1", "v1"], "v1beta1"),
        (&["v2", "v1", "v1beta1"], "v1"),
    ] {
        let hooks = Hooks::start(convert).await;
        let server = Server::in_memory().await.unwrap();
        set_conversion(&server, hooks.url("/convert"), reviews).await;
        assert_eq!(create(&server, "v2", "a", json!({"count": 5})).await.0, 201);
        let asked = hooks.take_requests();
        assert!(!asked.is_empty());
        for (_, review) in asked {
            let version = format!("apiextensions.k8s.io/{spoken}");
            assert_eq!(review["apiVersion"], version.as_str(), "{reviews:?}");
            assert_eq!(review["kind"], "ConversionReview");
        }
        let stored = get(&server, "v1", "a").await.1;
        assert_eq!(stored["spec"], json!({"size": "5"}), "{reviews:?}");
    }
}

#[tokio::test]
async fn only_a_review_in_v1_has_to_say_what_it_answers() {
    for (review, code) in [("v1beta1", 200), ("v1", 500)] {
        let hooks = Hooks::start(convert_silently).await;
        let server = Server::in_memory().await.unwrap();
        set_conversion(&server, hooks.url("/convert"), &[review]).await;
        assert_eq!(
            create(&server, "v1", "a", json!({"size": "3"})).await.0,
            201
        );
        let (found, read) = get(&server, "v2", "a").await;
        assert_eq!(found, code, "{read}");
        if code == 500 {
            let text = "conversion webhook for example.com/v1, Kind=Thing failed: expected webhook response of \
                        apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind=";
            assert_eq!(read["message"], text);
        }
    }
}
