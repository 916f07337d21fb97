use http::{Method, Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::Config;
use crate::controller::events::Recorder;
use crate::controller::metrics::Metrics;
use crate::served::Served;

fn terminating(uid: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "ns", "uid": uid, "resourceVersion": "7", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"finalizers": [FINALIZER]},
    })
}

/// Whether a namespace that the cache shows as terminating is worked on, when the API server has `live`.
async fn check(cached: &Value, live: Option<Value>, expected: bool) {
    let writes = Arc::new(Mutex::new(0));
    let (seen, answer) = (writes.clone(), live.clone());
    let service = tower::service_fn(move |request: Request<Body>| {
        if request.method() != Method::GET {
            *seen.lock() += 1;
        }
        let missing =
            json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"});
        let (code, body) = answer.clone().map_or((404, missing), |live| (200, live));
        let response = Response::builder()
            .status(code)
            .body(Body::from(body.to_string().into_bytes()));
        async { response }
    });
    let client = Client::new(service, "default");
    let (config, metrics) = (Config::external(), Metrics::new());
    let stop = CancellationToken::new();
    let clock = config.clock.clone();
    let (events, _) = Recorder::new(client.clone(), move || clock.now(), "test", stop.clone());
    let context = Context::new(client.clone(), config, metrics.clone(), events, stop);
    let controller = Namespaces {
        client,
        clock: context.clock.clone(),
        inventory: Inventory::new(&context, &Served::default()),
        namespaces: Informer::new(),
        queue: context.queue("namespace"),
    };
    let cached = serde_json::from_value(cached.clone()).expect("a namespace");
    controller.namespaces.apply(cached);
    controller.sync("ns").await.expect("the server answers");
    assert_eq!(*writes.lock() > 0, expected, "{live:?}");
}

#[tokio::test]
async fn regression_a_stale_cache_does_not_empty_a_namespace_that_was_created_again() {
    let cached = terminating("old");
    let mut created_again = terminating("new");
    created_again["metadata"]["deletionTimestamp"] = Value::Null;
    check(&cached, Some(created_again), false).await;
    check(&cached, Some(terminating("new")), false).await;
    check(&cached, None, false).await;
    check(&cached, Some(terminating("old")), true).await;
}

fn shown(left: &Remaining, undiscovered: bool) -> Vec<String> {
    let now = Timestamp::from_second(1_800_000_000).unwrap();
    conditions(Vec::new(), left, undiscovered, now)
        .iter()
        .map(|c| {
            format!(
                "{}={} {}: {}",
                c["type"].as_str().unwrap(),
                c["status"].as_str().unwrap(),
                c["reason"].as_str().unwrap(),
                c["message"].as_str().unwrap()
            )
        })
        .collect()
}

#[test]
fn conditions_tell_what_is_left() {
    let left = Remaining {
        resources: vec![
            ("pods.".to_owned(), 2),
            ("widgets.example.com".to_owned(), 1),
        ],
        finalizers: [("example.com/wait".to_owned(), 1)].into(),
        errors: Vec::new(),
    };
    assert_eq!(
        shown(&left, false),
        [
            "NamespaceDeletionDiscoveryFailure=False ResourcesDiscovered: All resources successfully discovered",
            "NamespaceDeletionGroupVersionParsingFailure=False ParsedGroupVersions: All legacy kube types successfully parsed",
            "NamespaceDeletionContentFailure=False ContentDeleted: All content successfully deleted, may be waiting on finalization",
            "NamespaceContentRemaining=True SomeResourcesRemain: Some resources are remaining: pods. has 2 resource instances, widgets.example.com has 1 resource instances",
            "NamespaceFinalizersRemaining=True SomeFinalizersRemain: Some content in the namespace has finalizers remaining: example.com/wait in 1 resource instances",
        ]
    );
    assert!(!left.is_empty());
    assert!(Remaining::default().is_empty());
}
