//! Webhooks that change objects.

use allot_apiserver::Server;
use allot_apiserver::config::Config;
use allot_apiserver::registry::RuntimeConfig;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Hooks, MAPS, MUTATING, install, map, response, webhook};
use crate::{admin, with_config};

/// Adds a label with the number of labels that it sees, or what the path says.
fn change(path: &str, review: &Value) -> Option<(u16, Value)> {
    let request = &review["request"];
    let labels = request["object"]["metadata"]["labels"].as_object();
    let path = path.split('?').next().unwrap();
    let patch = match path {
        "/empty" => json!([]),
        "/bad" => json!([{"op": "replace", "path": "/data/none/x", "value": ""}]),
        "/replicas" => json!([{"op": "replace", "path": "/spec/replicas", "value": 2}]),
        "/device" => {
            json!([{"op": "add", "path": "/spec/selectors", "value": [{"cel": {"expression": "true"}}]}])
        }
        _ => {
            let count = labels.map_or(0, serde_json::Map::len);
            let mut patch = Vec::new();
            if labels.is_none() {
                patch.push(json!({"op": "add", "path": "/metadata/labels", "value": {}}));
            }
            let key = path.trim_start_matches('/');
            if labels.is_none_or(|labels| !labels.contains_key(key)) {
                patch.push(json!({"op": "add", "path": format!("/metadata/labels/{key}"), "value": count.to_string()}));
            }
            Value::from(patch)
        }
    };
    let answer = json!({
        "allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string()),
    });
    Some((200, response(review, answer)))
}

#[tokio::test]
async fn webhooks_change_objects_one_after_the_other() {
    let hooks = Hooks::start(change).await;
    let server = Server::in_memory().await.unwrap();
    let again = json!({"reinvocationPolicy": "IfNeeded"});
    install(
        &server,
        MUTATING,
        "w",
        &[
            webhook("a", hooks.url("/a"), again),
            webhook("b", hooks.url("/b"), json!({})),
            webhook("c", hooks.url("/empty"), json!({})),
        ],
    )
    .await;
    let made = json!({"metadata": {"name": "x"}});
    let (code, map) = admin(&server, "POST", MAPS, made).await;
    assert_eq!(code, 201, "{map}");
    assert_eq!(map["metadata"]["labels"], json!({"a": "0", "b": "1"}));
    // The first is asked again, because the second has changed the object since; it has nothing to add.
    let paths = hooks.take_requests().into_iter().map(|(path, _)| path);
    let expected = ["/a", "/b", "/empty", "/a"].map(|path| format!("{path}?timeout=10s"));
    assert_eq!(paths.collect::<Vec<_>>(), expected);
    let (_, stored) = admin(&server, "GET", &format!("{MAPS}/x"), Value::Null).await;
    assert_eq!(stored["metadata"]["labels"], map["metadata"]["labels"]);
}

#[tokio::test]
async fn changes_that_can_not_be_made_are_refused() {
    let hooks = Hooks::start(change).await;
    let server = Server::in_memory().await.unwrap();
    let deletes = json!({"rules": [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["configmaps"]},
    ]});
    install(
        &server,
        MUTATING,
        "d",
        &[webhook("d", hooks.url("/d"), deletes)],
    )
    .await;
    assert_eq!(
        admin(&server, "POST", MAPS, json!({"metadata": {"name": "x"}}))
            .await
            .0,
        201
    );
    let (code, answer) = admin(&server, "DELETE", &format!("{MAPS}/x"), Value::Null).await;
    let text = "Internal error occurred: admission webhook \"d.example.com\" attempted to modify the object, which is \
                not supported for this operation";
    assert_eq!((code, &answer["message"]), (500, &json!(text)));
    install(
        &server,
        MUTATING,
        "e",
        &[webhook("e", hooks.url("/bad"), json!({}))],
    )
    .await;
    assert_eq!(map(&server, "y").await.0, 500);
}

#[tokio::test]
async fn webhooks_see_the_version_and_part_that_they_name() {
    let hooks = Hooks::start(change).await;
    let config = Config {
        runtime_config: RuntimeConfig::parse("resource.k8s.io/v1beta1=true").unwrap(),
        ..Config::default()
    };
    let server = with_config(config).await;
    let rule = |group: &str, version: &str, operation: &str, resource: &str| {
        json!({"rules": [
            {"apiGroups": [group], "apiVersions": [version], "operations": [operation], "resources": [resource]},
        ]})
    };
    let scale = rule("apps", "v1", "UPDATE", "deployments/scale");
    let class = rule("resource.k8s.io", "v1beta1", "CREATE", "deviceclasses");
    install(
        &server,
        MUTATING,
        "w",
        &[
            webhook("scale", hooks.url("/replicas"), scale),
            webhook("class", hooks.url("/device"), class),
        ],
    )
    .await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = json!({"metadata": {"name": "d"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }});
    assert_eq!(admin(&server, "POST", deployments, deployment).await.0, 201);
    let path = format!("{deployments}/d/scale");
    let (code, scale) = admin(&server, "PATCH", &path, json!({"spec": {"replicas": 9}})).await;
    assert_eq!(
        (code, &scale["spec"]["replicas"]),
        (200, &json!(2)),
        "{scale}"
    );
    let class = json!({"metadata": {"name": "c"}});
    let path = "/apis/resource.k8s.io/v1/deviceclasses";
    let (code, class) = admin(&server, "POST", path, class).await;
    assert_eq!(code, 201, "{class}");
    assert_eq!(
        class["spec"]["selectors"],
        json!([{"cel": {"expression": "true"}}])
    );
    let asked = hooks.take_requests();
    let [(_, scale), (_, class)] = &asked[..] else {
        panic!("{asked:?}");
    };
    assert_eq!(scale["request"]["object"]["kind"], "Scale");
    assert_eq!(scale["request"]["oldObject"]["spec"]["replicas"], 1);
    assert_eq!(
        class["request"]["object"]["apiVersion"],
        "resource.k8s.io/v1beta1"
    );
    assert_eq!(class["request"]["requestResource"]["version"], "v1");
}
