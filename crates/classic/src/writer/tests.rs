use std::convert::Infallible;

use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::Value;

use super::*;

/// The pod was deleted and created anew before its negotiation was deleted: that of the new pod went, and its drivers answered
/// without success.
#[tokio::test]
async fn regression_the_negotiation_of_a_later_pod_is_not_deleted() {
    let pod = json!({"metadata": {"namespace": "default", "name": "p", "uid": "old"}, "spec": {"containers": []}});
    let pod = PodInfo::new(Arc::new(serde_json::from_value(pod).expect("a pod")));
    for (owner, expected) in [("old", vec![json!("found")]), ("new", vec![])] {
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
                let found = json!({
                    "apiVersion": "resource.k8s.io/v1alpha2", "kind": "PodSchedulingContext",
                    "metadata": {
                        "namespace": "default", "name": "p", "uid": "found",
                        "ownerReferences": [
                            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": true},
                        ],
                    },
                    "spec": {},
                });
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
        writer.forget(&pod).await;
        assert_eq!(*deleted.lock(), expected, "{owner}");
    }
}
