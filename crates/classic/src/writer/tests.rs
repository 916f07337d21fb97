use std::convert::Infallible;

use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;

use super::*;

/// What is deleted for pod `p` with UID `old`, by precondition. The server has a negotiation of the pod with UID `owner`,
/// and that pod in this phase.
async fn deleted(owner: &'static str, phase: &'static str, only_finished: bool) -> Vec<Value> {
    let deleted = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&deleted);
    let service = tower::service_fn(move |request: Request<Body>| {
        let seen = Arc::clone(&seen);
        async move {
            let (head, body) = request.into_parts();
            if head.method == Method::DELETE {
                let body = body.collect().await.expect("a body").to_bytes();
                let options: Value = serde_json::from_slice(&body).expect("JSON");
                seen.lock().push(options["preconditions"]["uid"].clone());
            }
            let found = match head.uri.path().contains("/pods/") {
                true => json!({
                    "apiVersion": "v1", "kind": "Pod",
                    "metadata": {"namespace": "default", "name": "p", "uid": owner},
                    "status": {"phase": phase},
                }),
                false => json!({
                    "apiVersion": "resource.k8s.io/v1alpha2", "kind": "PodSchedulingContext",
                    "metadata": {
                        "namespace": "default", "name": "p", "uid": "found",
                        "ownerReferences": [
                            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": true},
                        ],
                    },
                    "spec": {},
                }),
            };
            let body = Body::from(found.to_string().into_bytes());
            Ok::<_, Infallible>(Response::new(body))
        }
    });
    let served = Served {
        version: "v1alpha2",
        structured: false,
        deterministic_names: false,
        alone: true,
    };
    let writer = ClassicWriter::new(Client::new(service, "default"), served);
    let (pod, uid) = (Key::new("default", "p"), Uid::from("old"));
    writer.forget(&pod, &uid, only_finished).await;
    deleted.lock().clone()
}

/// The pod was deleted and created again before its negotiation was deleted: that of the new pod went, and its drivers answered
/// without success.
#[tokio::test]
async fn regression_the_negotiation_of_a_later_pod_is_not_deleted() {
    for only_finished in [false, true] {
        let check = async |owner, expected: &[Value]| {
            assert_eq!(
                deleted(owner, "Succeeded", only_finished).await,
                expected,
                "{owner}"
            );
        };
        check("old", &[json!("found")]).await;
        check("new", &[]).await;
    }
}

#[tokio::test]
async fn a_negotiation_without_a_known_pod_is_deleted_if_the_pod_has_finished() {
    let check = async |phase, expected: &[Value]| {
        assert_eq!(deleted("old", phase, true).await, expected, "{phase}");
    };
    check("Succeeded", &[json!("found")]).await;
    check("Failed", &[json!("found")]).await;
    check("Pending", &[]).await;
    check("Running", &[]).await;
}
