//! The addresses of a service stay reserved while a webhook runs, and other requests need not wait for that.

use std::time::Duration;

use allot_apiserver::Server;
use serde_json::{Value, json};

use super::{Hooks, MUTATING, VALIDATING, install, webhook};
use crate::admin;

const SERVICES: &str = "/api/v1/namespaces/default/services";
/// Much longer than anything here takes.
const LONG: Duration = Duration::from_secs(20);

async fn create(server: &Server, name: &str, port: i64) -> (u16, Value) {
    let service = json!({
        "metadata": {"name": name},
        "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]},
    });
    let created = admin(server, "POST", SERVICES, service);
    tokio::time::timeout(LONG, created)
        .await
        .expect("not held up")
}

#[tokio::test]
async fn a_slow_webhook_holds_up_its_own_service_only() {
    for kind in [MUTATING, VALIDATING] {
        let hooks = Hooks::start(|_, _| None).await;
        let server = Server::in_memory().await.unwrap();
        let slow = webhook(
            "slow",
            hooks.url("/slow"),
            json!({
                "timeoutSeconds": 30,
                "rules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["services"],
                }],
                "matchConditions": [{"name": "slow", "expression": "object.metadata.name == 'slow'"}],
            }),
        );
        install(&server, kind, "slow", &[slow]).await;
        let waits = {
            let server = server.clone();
            tokio::spawn(async move { create(&server, "slow", 30_001).await })
        };
        tokio::time::timeout(LONG, hooks.news.notified())
            .await
            .expect("the webhook is asked");
        let (code, other) = create(&server, "other", 30_002).await;
        assert_eq!(code, 201, "{other}");
        let change = json!({"spec": {"ports": [{"port": 81, "nodePort": 30_003}]}});
        let path = format!("{SERVICES}/other");
        assert_eq!(admin(&server, "PATCH", &path, change).await.0, 200);
        if kind == VALIDATING {
            // The reviewed object contains its allocated addresses.
            let asked = hooks.take_requests();
            let address = &asked[0].1["request"]["object"]["spec"]["clusterIP"];
            assert!(address.is_string(), "{asked:?}");
            let (code, refused) = create(&server, "thief", 30_001).await;
            assert_eq!(code, 422, "{refused}");
            let why = "provided port is already allocated";
            assert!(refused["message"].as_str().unwrap().ends_with(why));
        }
        // Given back by a request that does not come to an end.
        waits.abort();
        assert!(waits.await.unwrap_err().is_cancelled());
        let (code, free) = create(&server, "heir", 30_001).await;
        assert_eq!(code, 201, "{free}");
    }
}
