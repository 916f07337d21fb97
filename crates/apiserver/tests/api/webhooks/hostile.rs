//! Admission webhooks that mean harm.

use allot_apiserver::Server;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Hooks, MUTATING, install, map, response, webhook};

/// The path says which harm.
fn hostile(path: &str, review: &Value) -> Option<(u16, Value)> {
    let long = || Value::from("é".repeat(1 << 20));
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
        // Each copy is of all that the ones before have made.
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

/// What a webhook said in place of an answer was told as it was, twice.
#[tokio::test]
async fn regression_answers_of_hostile_webhooks_are_told_in_part() {
    let hooks = Hooks::start(hostile).await;
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
