use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::Config;
use crate::claims::metrics::ClaimMetrics;
use crate::controller::events::Recorder;
use crate::controller::informer::Informer;
use crate::controller::metrics::Metrics;
use crate::controller::queue::Queue;
use allot_reflector::Writes;

fn pod(uid: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ns", "uid": uid},
        "spec": {"containers": []},
    })
}

/// Whether the claim of pod `p` with the UID `new` is deleted while it has no reservation.
async fn check(cached: &str, live: Option<&str>, expected: bool) {
    let live = match live {
        Some(uid) => (200, pod(uid)),
        None => (
            404,
            json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"}),
        ),
    };
    let deleted = Arc::new(Mutex::new(false));
    let seen = deleted.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (code, body) = match request.method() == http::Method::DELETE {
            true => {
                *seen.lock() = true;
                (
                    200,
                    json!({"apiVersion": "v1", "kind": "Status", "status": "Success"}),
                )
            }
            false => live.clone(),
        };
        let response = Response::builder()
            .status(code)
            .body(Body::from(body.to_string().into_bytes()));
        async { response }
    });
    let client = Client::new(service, "default");
    let (config, metrics) = (Config::external(), Metrics::new());
    let stop = CancellationToken::new();
    let clock = config.clock;
    let (events, _) = Recorder::new(client.clone(), move || clock.now(), "test", stop);
    let claims = Claims {
        writes: Writes::new(client.clone()),
        client,
        events,
        pods: Informer::new(),
        claims: Informer::new(),
        templates: Informer::new(),
        classic: None,
        groups: None,
        deleted: Mutex::default(),
        metrics: ClaimMetrics::register(&metrics),
        queue: Queue::new("claims", metrics.queue("claims")),
    };
    let claim = json!({
        "metadata": {
            "name": "c", "namespace": "ns", "uid": "c",
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "new", "controller": true},
            ],
        },
        "spec": {},
    });
    claims
        .pods
        .apply(serde_json::from_value(pod(cached)).expect("a pod"));
    claims
        .claims
        .apply(serde_json::from_value(claim).expect("a claim"));
    claims.sync_claim("ns/c").await.expect("it is checked");
    assert_eq!(*deleted.lock(), expected, "cached: {cached}");
}

/// The scheduler makes claims for extended resources, and may be told of a pod earlier than this controller.
#[tokio::test]
async fn regression_a_claim_of_a_pod_that_is_not_in_the_cache_yet_is_kept() {
    check("old", Some("new"), false).await;
    check("new", None, false).await;
    check("old", Some("newer"), true).await;
    check("old", None, true).await;
}
