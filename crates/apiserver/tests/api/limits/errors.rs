//! Errors that repeat what was sent must not multiply it.

use allot_apiserver::Server;
use allot_apiserver::identity::User;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::admin;

/// The longest answer: the text of all errors, and again the causes, with quotes that are escaped.
const LONGEST: usize = 8 << 20;

async fn check(server: &Server, path: &str, body: &Value) {
    check_up_to(server, path, body, LONGEST).await;
}

async fn check_up_to(server: &Server, path: &str, body: &Value, longest: usize) {
    let body = body.to_string();
    let sent = body.len();
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(Full::new(bytes::Bytes::from(body)))
        .unwrap();
    let response = server.handle(request, Some(User::admin())).await;
    let code = response.status().as_u16();
    let answer = response.into_body().collect().await.unwrap().to_bytes();
    assert!(matches!(code, 400 | 422), "{path}: {code}");
    assert!(
        answer.len() <= longest,
        "{path}: {} bytes for {sent}",
        answer.len()
    );
}

fn numbered(count: usize, item: impl Fn(usize) -> Value) -> Vec<Value> {
    (0..count).map(item).collect()
}

#[tokio::test]
async fn regression_owners_and_claims_are_not_repeated_in_each_error() {
    let server = Server::in_memory().await.unwrap();
    let owners = numbered(
        1000,
        |at| json!({"apiVersion": "v1", "kind": "Pod", "name": format!("p{at}"), "uid": at.to_string(), "controller": true}),
    );
    let map = json!({"metadata": {"name": "m", "ownerReferences": owners}});
    check(&server, "/api/v1/namespaces/default/configmaps", &map).await;
    let claims = numbered(
        1000,
        |at| json!({"name": format!("claim-{at}"), "resourceClaimName": "x"}),
    );
    let used = numbered(1000, |_| json!({"name": "another"}));
    let container = json!({"name": "c", "image": "i", "resources": {"claims": used}});
    let pod = json!({
        "metadata": {"name": "p"}, "spec": {"resourceClaims": claims, "containers": [container]},
    });
    check(&server, "/api/v1/namespaces/default/pods", &pod).await;
}

#[tokio::test]
async fn regression_a_long_key_is_not_repeated_for_each_field_below_it() {
    let server = Server::in_memory().await.unwrap();
    let key = "k".repeat(20_000);
    let unknown: Value = (0..2000)
        .map(|at| (format!("x{at}"), json!(1)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let device = json!({"name": "d", "attributes": {&key: unknown}});
    let slice = json!({
        "metadata": {"name": "s"},
        "spec": {
            "driver": "d.example.com", "nodeName": "n", "devices": [device],
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        },
    });
    let slices = "/apis/resource.k8s.io/v1/resourceslices?fieldValidation=Strict";
    check(&server, slices, &slice).await;
    let entry = json!({"type": "object", "properties": {"known": {"type": "string"}}});
    let spec = json!({"type": "object", "additionalProperties": entry});
    let definition = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Cluster",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
            }],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (code, body) = admin(&server, "POST", definitions, definition).await;
    assert_eq!(code, 201, "{body}");
    let things = "/apis/example.com/v1/things";
    let served = || async {
        match admin(&server, "GET", things, Value::Null).await.0 {
            200 => Ok(()),
            code => Err(code),
        }
    };
    allot_testing::wait::until("the custom resource is served", served).await;
    let thing = json!({
        "apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {&key: unknown},
    });
    check(
        &server,
        "/apis/example.com/v1/things?fieldValidation=Strict",
        &thing,
    )
    .await;
}

/// An entry of two bytes has several errors of hundreds of bytes each: 8 kB were answered with 2.6 MB.
#[tokio::test]
async fn regression_short_entries_do_not_make_a_long_answer() {
    const MOST: usize = 400_000;
    let server = Server::in_memory().await.unwrap();
    let empty = || numbered(3000, |_| json!({}));
    let spec =
        json!({"containers": [{"name": "c", "image": "i"}], "topologySpreadConstraints": empty()});
    let tainted = json!({"metadata": {"name": "n"}, "spec": {"taints": empty()}});
    for (path, body) in [
        ("nodes", tainted),
        (
            "namespaces/default/pods",
            json!({"metadata": {"name": "p"}, "spec": spec}),
        ),
        (
            "namespaces/default/services",
            json!({"metadata": {"name": "s"}, "spec": {"ports": empty()}}),
        ),
        (
            "namespaces/default/configmaps",
            json!({"metadata": {"name": "m", "finalizers": numbered(3000, |_| json!("!")), "managedFields": empty()}}),
        ),
    ] {
        check_up_to(&server, &format!("/api/v1/{path}"), &body, MOST).await;
    }
}

#[tokio::test]
async fn regression_conflicts_are_listed_up_to_a_bound() {
    let server = Server::in_memory().await.unwrap();
    let data: Value = (0..3000)
        .map(|at| (format!("{}{at}", "k".repeat(150)), json!("a")))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let mut map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data});
    for (manager, value, expected) in [("one", "a", 201), ("two", "b", 409)] {
        for (_, text) in map["data"].as_object_mut().unwrap() {
            *text = value.into();
        }
        let path = format!("/api/v1/namespaces/default/configmaps/m?fieldManager={manager}");
        let request = http::Request::patch(path)
            .header("content-type", "application/apply-patch+yaml")
            .body(Full::new(bytes::Bytes::from(map.to_string())))
            .unwrap();
        let response = server.handle(request, Some(User::admin())).await;
        assert_eq!(response.status(), expected);
        let answer = response.into_body().collect().await.unwrap().to_bytes();
        if expected == 409 {
            let text = String::from_utf8_lossy(&answer);
            assert!(
                text.contains("Apply failed with 3000 conflicts"),
                "{text:.200}"
            );
            assert!(answer.len() < 300_000, "{}", answer.len());
        }
    }
}
