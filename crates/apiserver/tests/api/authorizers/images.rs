//! ImagePolicyWebhook: a webhook decides which images pods may have.

use allot_apiserver::config::{AdmissionOptions, ImagePolicy};

use super::*;
use crate::admin;

/// Rejects images whose name says so, and fails for the image `unknown`.
fn review_images(review: &Value) -> Option<(u16, String, Bytes)> {
    match review["spec"]["containers"][0]["image"].as_str() {
        Some("bad") => status(&json!({"allowed": false, "reason": "it is bad"})),
        Some("silent") => status(&json!({})),
        Some("unknown") => Some((503, String::new(), Bytes::new())),
        _ => status(&json!({"allowed": true})),
    }
}

async fn server_with(hook: &Hook, default_allow: bool) -> Server {
    with_config(Config {
        admission: AdmissionOptions {
            image_policy: Some(ImagePolicy {
                kubeconfig: Kubeconfig::read(&hook.kubeconfig()).unwrap(),
                allow_ttl: HOUR,
                deny_ttl: Duration::ZERO,
                retry_backoff: Duration::from_millis(1),
                default_allow,
            }),
            ..AdmissionOptions::default()
        },
        authorization: vec![AuthorizationMode::AlwaysAllow],
        enabled_admission: vec!["ImagePolicyWebhook".to_owned()],
        disabled_admission: vec!["ServiceAccount".to_owned()],
        ..Config::default()
    })
    .await
}

async fn pod(server: &Server, name: &str, image: &str) -> (u16, String) {
    let pod = json!({
        "metadata": {"name": name, "annotations": {"x.image-policy.k8s.io/k": "v", "other": "o"}},
        "spec": {
            "containers": [{"name": "c", "image": image}], "initContainers": [{"name": "i", "image": "first"}],
        },
    });
    let (code, answer) = admin(server, "POST", PODS, pod).await;
    let message = answer["message"].as_str().unwrap_or_default();
    (code, message.to_owned())
}

#[tokio::test]
async fn pods_have_only_images_that_the_webhook_allows() {
    let hook = Hook::start(Box::new(review_images)).await;
    let server = server_with(&hook, false).await;
    assert_eq!(pod(&server, "p", "good").await.0, 201);
    let review = |spec: Value| {
        json!({
            "kind": "ImageReview", "apiVersion": "imagepolicy.k8s.io/v1alpha1", "metadata": {}, "spec": spec,
            "status": {"allowed": false},
        })
    };
    let asked = json!({
        "containers": [{"image": "good"}, {"image": "first"}],
        "annotations": {"x.image-policy.k8s.io/k": "v"}, "namespace": "default",
    });
    assert_eq!(hook.last(), review(asked));
    // Answers that images are allowed are kept.
    assert_eq!(pod(&server, "q", "good").await.0, 201);
    assert_eq!(hook.count(), 1);
    for (image, why) in [
        (
            "bad",
            "image policy webhook backend denied one or more images: it is bad",
        ),
        ("silent", "one or more images rejected by webhook backend"),
    ] {
        let expected = format!("pods \"r\" is forbidden: {why}");
        assert_eq!(pod(&server, "r", image).await, (403, expected));
    }
    let (code, why) = pod(&server, "r", "unknown").await;
    assert!(
        code == 403 && why.starts_with("pods \"r\" is forbidden: "),
        "{code} {why}"
    );
    assert_eq!(hook.count(), 4);

    let containers = json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "bad"}]}});
    let path = format!("{PODS}/p/ephemeralcontainers");
    let (code, answer) = admin(&server, "PATCH", &path, containers).await;
    assert_eq!(code, 403, "{answer}");
    let asked = json!({
        "containers": [{"image": "bad"}], "annotations": {"x.image-policy.k8s.io/k": "v"}, "namespace": "default",
    });
    assert_eq!(hook.last(), review(asked));
}

#[tokio::test]
async fn pods_are_allowed_without_an_answer_only_if_that_is_configured() {
    let hook = Hook::start(Box::new(review_images)).await;
    let server = server_with(&hook, true).await;
    assert_eq!(pod(&server, "p", "unknown").await.0, 201);
    assert_eq!(pod(&server, "q", "bad").await.0, 403);
}
