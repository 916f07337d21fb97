use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

/// A server that has these things; everything else it answers as said.
async fn ask(has: &[(&str, Value)], otherwise: (u16, Value)) -> Served {
    let has: Vec<(String, Value)> = has
        .iter()
        .map(|(p, v)| ((*p).to_owned(), v.clone()))
        .collect();
    let service = tower::service_fn(move |request: Request<Body>| {
        let found = has.iter().find(|(path, _)| path == request.uri().path());
        let (code, body) = found.map_or(otherwise.clone(), |(_, body)| (200, body.clone()));
        let response = Response::builder()
            .status(code)
            .body(Body::from(body.to_string().into_bytes()));
        async { response }
    });
    let client = Client::new(service, "default");
    let shutdown = CancellationToken::new();
    tokio::time::timeout(Duration::from_mins(1), served(&client, &shutdown))
        .await
        .expect("it answers")
        .expect("it can be asked")
}

fn resources(name: &str) -> Value {
    let resource =
        json!({"name": name, "singularName": "", "namespaced": true, "kind": "K", "verbs": []});
    json!({"groupVersion": "v", "resources": [resource]})
}

fn groups(versions: &[&str]) -> Value {
    let group = |v: &&str| {
        let name = v.split('/').next();
        json!({"name": name, "versions": [{"groupVersion": v, "version": "v"}]})
    };
    json!({"groups": versions.iter().map(group).collect::<Vec<_>>()})
}

/// The generic server that kube-apiserver is built on lists its paths for an unknown one: a JSON object that is no
/// Status, and is read as one without a code. The controllers waited for it endlessly.
#[tokio::test(start_paused = true)]
async fn does_not_wait_for_groups_that_a_generic_server_does_not_have() {
    let has = [
        ("/apis", groups(&["apps/v1", "resource.k8s.io/v1"])),
        ("/apis/apps/v1", resources("deployments")),
        ("/apis/resource.k8s.io/v1", resources("resourceclaims")),
    ];
    let paths = json!({"paths": ["/api", "/apis", "/healthz"]});
    let served = ask(&has, (404, paths)).await;
    assert!(served.has("apps/v1", "deployments"));
    assert!(served.has("resource.k8s.io/v1", "resourceclaims"));
    assert!(!served.has("batch/v1", "jobs"));
}

#[tokio::test(start_paused = true)]
async fn asks_for_every_group_where_they_may_not_be_listed() {
    let has = [("/apis/apps/v1", resources("deployments"))];
    let refused =
        json!({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403});
    let served = ask(&has, (403, refused)).await;
    assert!(served.has("apps/v1", "deployments"));
    assert!(!served.has("batch/v1", "jobs"));
}

/// A server that emulates an old release does not list what it has for its own components: no claim was ever made there.
#[tokio::test(start_paused = true)]
async fn regression_asks_for_what_is_not_listed() {
    let has = [
        ("/apis", groups(&["resource.k8s.io/v1alpha3"])),
        ("/apis/resource.k8s.io/v1", resources("resourceclaims")),
    ];
    let missing = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
    let served = ask(&has, (404, missing)).await;
    assert!(served.has("resource.k8s.io/v1", "resourceclaims"));
    assert!(!served.has("apps/v1", "deployments"));
}
