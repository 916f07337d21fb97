//! Deletions that a webhook reviews.

use allot_apiserver::Server;
use serde_json::{Value, json};

use super::{Hooks, MAPS, VALIDATING, install, judge, webhook};
use crate::admin;

#[tokio::test]
async fn regression_deletecollection_leaves_what_was_created_after_its_list() {
    let hooks = Hooks::start(judge).await;
    let server = Server::in_memory().await.unwrap();
    let held = json!({
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["configmaps"]}],
        "objectSelector": {"matchLabels": {"held": "yes"}},
        "timeoutSeconds": 30,
    });
    let checks = webhook("check", hooks.url("/slow"), held);
    install(&server, VALIDATING, "checks", &[checks]).await;
    let first = json!({"metadata": {"name": "a", "labels": {"held": "yes"}}});
    let second = json!({"metadata": {"name": "b"}});
    for map in [&first, &second] {
        assert_eq!(admin(&server, "POST", MAPS, map.clone()).await.0, 201);
    }
    let b = format!("{MAPS}/b");
    // The first of the list is under review when the second is replaced.
    let meanwhile = async {
        hooks.news.notified().await;
        assert_eq!(admin(&server, "DELETE", &b, Value::Null).await.0, 200);
        let (code, created) = admin(&server, "POST", MAPS, second.clone()).await;
        assert_eq!(code, 201, "{created}");
        hooks.release.notify_one();
        created
    };
    let deletion = admin(&server, "DELETE", MAPS, Value::Null);
    let ((code, answer), created) = tokio::join!(deletion, meanwhile);
    assert_eq!(code, 200, "{answer}");
    let found = admin(&server, "GET", &b, Value::Null).await;
    assert_eq!(found, (200, created));
    let a = format!("{MAPS}/a");
    assert_eq!(admin(&server, "GET", &a, Value::Null).await.0, 404);
}
