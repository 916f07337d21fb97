//! Roles that select others: the server reads what is written in a role, and selectors lead nowhere in it.

use std::sync::Arc;

use allot_apiserver::{Config, Server};
use allot_store::{Backend, Draft, Embedded, Expect, Options, Write};
use serde_json::{Value, json};

use super::kit::{RBAC, allow, binding, check, cluster_role, send_as, user};
use crate::admin;

fn aggregating_role(name: &str, own: &str, selector: Value) -> Value {
    let mut role = cluster_role(name, "");
    role["metadata"]["labels"] = json!({own: "true"});
    role["aggregationRule"] = json!({"clusterRoleSelectors": [selector]});
    role
}

fn label(name: &str) -> Value {
    json!({"matchLabels": {name: "true"}})
}

/// Creates roles that aggregate themselves, each other, and all roles, and binds them to all users.
async fn create_role_cycles(server: &Server) {
    for role in [
        aggregating_role("a", "x-a", label("x-b")),
        aggregating_role("b", "x-b", label("x-a")),
        aggregating_role("self", "x-self", label("x-self")),
        aggregating_role("all", "x-all", json!({})),
        aggregating_role("many", "x-many", json!({})),
    ] {
        let (code, body) = admin(server, "POST", &format!("{RBAC}/clusterroles"), role).await;
        assert_eq!(code, 201, "{body}");
    }
    let view = json!({"aggregationRule": {"clusterRoleSelectors": [{}]}});
    let (code, body) = admin(server, "PATCH", &format!("{RBAC}/clusterroles/view"), view).await;
    assert_eq!(code, 200, "{body}");
    for role in ["a", "self", "all", "view"] {
        let bound = binding(role, role, "jane");
        let (code, body) = admin(
            server,
            "POST",
            &format!("{RBAC}/clusterrolebindings"),
            bound,
        )
        .await;
        assert_eq!(code, 201, "{body}");
    }
}

#[tokio::test]
async fn cycles_of_roles_are_harmless_now_and_after_a_restart() {
    let backend: Arc<dyn Backend> = Arc::new(Embedded::in_memory(Options::default()));
    let jane = user("jane");
    for start in ["first", "again"] {
        let server = Server::new(backend.clone(), Config::default());
        server.bootstrap().await.unwrap();
        if start == "first" {
            create_role_cycles(&server).await;
        }
        check(&server, &jane, "GET /api/v1/secrets", &Value::Null, "403").await;
        check(&server, &jane, "GET /api/v1/pods", &Value::Null, "200").await;
        let anonymous = allot_apiserver::identity::User::anonymous();
        check(&server, &anonymous, "GET /livez", &Value::Null, "200").await;
    }
}

#[tokio::test]
async fn a_chain_of_ten_thousand_roles_is_read() {
    let backend: Arc<dyn Backend> = Arc::new(Embedded::in_memory(Options::default()));
    let server = Server::new(backend.clone(), Config::default());
    server.bootstrap().await.unwrap();
    let writes = (0..10_000).map(|at| {
        let name = format!("chain-{at}");
        let head = format!(
            r#"{{"metadata":{{"name":"{name}","labels":{{"x-{at}":"true"}},"resourceVersion":""#
        );
        let selector = label(&format!("x-{}", at + 1));
        let tail = format!(
            r#""}},"aggregationRule":{{"clusterRoleSelectors":[{selector}]}},"rules":[]}}"#
        );
        let write = Write::put(
            "rbac.authorization.k8s.io/clusterroles",
            name.as_str(),
            Expect::Absent,
            Draft::new(head.as_bytes(), tail.as_bytes()),
        );
        backend.commit(write)
    });
    futures::future::try_join_all(writes).await.unwrap();
    let jane = allow(&server, "jane", "get|-|configmaps").await;
    let bound = binding("chain", "chain-0", "jane");
    let (code, _) = admin(
        &server,
        "POST",
        &format!("{RBAC}/clusterrolebindings"),
        bound,
    )
    .await;
    assert_eq!(code, 201);
    let found = send_as(
        &server,
        &jane,
        "GET /api/v1/namespaces/default/configmaps/none",
        &Value::Null,
    )
    .await;
    assert!(found.starts_with("404"), "{found}");
}

#[tokio::test]
async fn default_roles_hold_what_they_collect() {
    let server = Server::in_memory().await.unwrap();
    let bob = user("bob");
    let bound = binding("bob", "edit", "bob");
    let (code, _) = admin(
        &server,
        "POST",
        &format!("{RBAC}/clusterrolebindings"),
        bound,
    )
    .await;
    assert_eq!(code, 201);
    let map = json!({"metadata": {"name": "m"}});
    let maps = "/api/v1/namespaces/default/configmaps";
    check(&server, &bob, &format!("POST {maps}"), &map, "201").await;
    check(&server, &bob, &format!("GET {maps}/m"), &Value::Null, "200").await;
    check(&server, &bob, "GET /api/v1/nodes", &Value::Null, "403").await;
    let mut counts = Vec::new();
    for role in ["view", "edit", "admin"] {
        let (_, role) = admin(
            &server,
            "GET",
            &format!("{RBAC}/clusterroles/{role}"),
            Value::Null,
        )
        .await;
        counts.push(role["rules"].as_array().unwrap().len());
    }
    assert!(
        counts[0] > 0 && counts.is_sorted_by(|a, b| a < b),
        "{counts:?}"
    );
}
