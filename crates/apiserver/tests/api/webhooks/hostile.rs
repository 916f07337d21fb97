//! Webhooks whose answers are hostile.

use allot_apiserver::Server;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::conversion::{convert, create, path, ready};
use super::{Hooks, MUTATING, install, map, response, webhook};
use crate::admin;

/// A text that is longer than an error may be.
fn long() -> Value {
    "é".repeat(1 << 20).into()
}

/// A hostile admission webhook; the path selects what is wrong with its answer.
fn hostile_admission(path: &str, review: &Value) -> Option<(u16, Value)> {
    let patched = |patch: Value| {
        let patch = STANDARD.encode(patch.to_string());
        json!({"allowed": true, "patchType": "JSONPatch", "patch": patch})
    };
    let add = |path: &str, value: Value| json!({"op": "add", "path": path, "value": value});
    let mut answer = response(review, json!({"allowed": true}));
    match path.split('?').next().unwrap() {
        "/uid" => answer["response"]["uid"] = long(),
        "/kind" => answer["kind"] = long(),
        "/type" => {
            answer = response(review, patched(json!([])));
            answer["response"]["patchType"] = long();
        }
        "/patch" => answer = response(review, patched(json!([add("/nothing/there", long())]))),
        "/path" => {
            let path = format!("/{}/x", "y".repeat(1 << 20));
            answer = response(review, patched(json!([add(&path, json!(1))])));
        }
        "/deep" => {
            let deep = (0..105).fold(json!({}), |inner, _| json!({"x": inner}));
            answer = response(review, patched(json!([add("/metadata/labels", deep)])));
        }
        // Each copy contains all earlier ones.
        "/copies" => {
            let mut patch = vec![add("/data", json!({"x": "y".repeat(1 << 10)}))];
            let copy =
                |at: usize| json!({"op": "copy", "from": "/data", "path": format!("/data/{at}")});
            patch.extend((0..100).map(copy));
            answer = response(review, patched(patch.into()));
        }
        "/huge" => answer["response"]["x"] = "y".repeat(4 << 20).into(),
        _ => {}
    }
    Some((200, answer))
}

/// Errors contained the faulty answer of an admission webhook in full, twice.
#[tokio::test]
async fn regression_answers_of_hostile_webhooks_are_told_in_part() {
    let hooks = Hooks::start(hostile_admission).await;
    for route in [
        "/uid", "/kind", "/type", "/patch", "/path", "/deep", "/copies", "/huge",
    ] {
        let server = Server::in_memory().await.unwrap();
        let one = webhook("w", hooks.url(route), json!({}));
        install(&server, MUTATING, "w", &[one]).await;
        let (code, text) = map(&server, "a").await;
        assert!(matches!(code, 400..=500), "{route}: {code} {text:.500}");
        assert!(text.len() < 5000, "{route}: {}", text.len());
    }
}

/// A hostile conversion webhook; the path selects what is wrong with its answer.
fn hostile_conversion(path: &str, review: &Value) -> Option<(u16, Value)> {
    let (code, mut answer) = convert(path, review)?;
    let response = &mut answer["response"];
    let first = &mut response["convertedObjects"][0];
    match path.split('?').next().unwrap() {
        "/long" => response["result"] = json!({"status": "Failed", "message": long()}),
        "/uid" => response["uid"] = long(),
        "/kind" => first["kind"] = long(),
        "/version" => first["apiVersion"] = long(),
        "/name" => first["metadata"]["name"] = long(),
        "/label" => first["metadata"]["labels"] = json!({"x": long()}),
        "/bare" => *first = json!({"x": long()}),
        "/list" => *first = json!([long()]),
        "/many" => response["convertedObjects"] = vec![json!({}); 500_000].into(),
        "/huge" => first["status"] = json!({"x": "y".repeat(4 << 20)}),
        "/deep" => first["status"] = (0..105).fold(json!({}), |inner, _| json!({"x": inner})),
        "/deeper" => first["status"] = (0..200).fold(json!({}), |inner, _| json!({"x": inner})),
        "/never" => return None,
        _ => {}
    }
    Some((code, answer))
}

/// Errors contained the texts of a conversion webhook in full, regardless of their length, and its objects could be nested deeper
/// than clients can read.
#[tokio::test]
async fn regression_hostile_webhooks_are_told_in_part() {
    for (route, why) in [
        ("/long", "failed: éé"),
        ("/uid", "failed: expected response.uid="),
        ("/kind", "returned invalid object at index 0: invalid kind"),
        (
            "/version",
            "returned invalid object at index 0: invalid groupVersion",
        ),
        (
            "/name",
            "returned invalid object: must have the same name: a != éé",
        ),
        ("/label", "returned invalid metadata: metadata.labels"),
        (
            "/bare",
            "returned invalid object at index 0: Object 'Kind' is missing in",
        ),
        (
            "/list",
            "returned invalid object at index 0: Object 'Kind' is missing in",
        ),
        ("/many", "returned 500000 objects, expected 1"),
        ("/huge", "failed: couldn't get version/kind"),
        (
            "/deep",
            "returned invalid object: the object is nested more than 100 levels deep",
        ),
        ("/deeper", "failed: couldn't get version/kind"),
    ] {
        let (_hooks, server) = ready(hostile_conversion, route).await;
        assert_eq!(
            create(&server, "v1", "a", json!({"size": "3"})).await.0,
            201
        );
        for of in ["a", ""] {
            let (code, answer) = admin(&server, "GET", &path("v2", of), Value::Null).await;
            let message = answer["message"].as_str().unwrap_or_default();
            assert_eq!(code, 500, "{route}: {answer:.500}");
            assert!(message.contains(why), "{route}: {message:.500}");
            assert!(message.len() < 4096, "{route}: {}", message.len());
        }
        // The version in which the object is stored needs no conversion.
        assert_eq!(
            admin(&server, "GET", &path("v1", "a"), Value::Null).await.0,
            200
        );
    }
    let (_hooks, server) = ready(hostile_conversion, "/never").await;
    assert_eq!(
        create(&server, "v1", "a", json!({"size": "3"})).await.0,
        201
    );
    let late = format!("{}?timeout=1s", path("v2", "a"));
    let (code, answer) = admin(&server, "GET", &late, Value::Null).await;
    assert!(matches!(code, 500 | 504), "{answer}");
}
