//! Authentication, authorization and escalation.

mod accounts;
mod aggregation;
mod depth;
mod dial;
mod escalation;
mod headers;
mod kit;
mod model;
mod panics;
mod paths;
mod plugins;
mod pod_security;
mod refusals;
mod token_keys;
mod tokens;
mod verbs;

use allot_apiserver::Server;
use allot_apiserver::config::Config;
use allot_apiserver::identity::{NODES, User};
use allot_model::features::{Feature, Features};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::{admin, send, with_config};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

async fn get(server: &Server, user: &User, path: &str) -> (u16, Value) {
    send(server, user.clone(), "GET", path, "application/json", b"").await
}

#[tokio::test]
async fn a_role_counts_from_the_next_request_on() {
    let server = Server::in_memory().await.unwrap();
    let jane = User::new("jane", Vec::<String>::new());
    let (code, body) = get(&server, &jane, MAPS).await;
    let denial = "configmaps is forbidden: User \"jane\" cannot list resource \"configmaps\" in API group \"\" in the \
                  namespace \"default\"";
    assert_eq!((code, body["message"].as_str()), (403, Some(denial)));
    let role = json!({
        "metadata": {"name": "r"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}],
    });
    let binding = json!({
        "metadata": {"name": "r"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}],
    });
    admin(
        &server,
        "POST",
        &format!("{RBAC}/namespaces/default/roles"),
        role,
    )
    .await;
    let (code, body) = admin(
        &server,
        "POST",
        &format!("{RBAC}/namespaces/default/rolebindings"),
        binding,
    )
    .await;
    assert_eq!(code, 201, "{body}");
    assert_eq!(get(&server, &jane, MAPS).await.0, 200);
    assert_eq!(
        get(&server, &jane, "/api/v1/namespaces/kube-system/configmaps")
            .await
            .0,
        403
    );
    admin(
        &server,
        "DELETE",
        &format!("{RBAC}/namespaces/default/rolebindings/r"),
        Value::Null,
    )
    .await;
    assert_eq!(get(&server, &jane, MAPS).await.0, 403);
}

#[tokio::test]
async fn all_users_may_discover_and_nothing_else() {
    let server = Server::in_memory().await.unwrap();
    let jane = User::new("jane", Vec::<String>::new());
    assert_eq!(get(&server, &jane, "/apis").await.0, 200);
    assert_eq!(get(&server, &User::anonymous(), "/livez").await.0, 200);
    assert_eq!(get(&server, &User::anonymous(), "/apis").await.0, 403);
    assert_eq!(get(&server, &jane, "/metrics").await.0, 403);
}

#[tokio::test]
async fn nodes_see_what_their_pods_need() {
    let server = Server::in_memory().await.unwrap();
    for name in ["used", "other"] {
        admin(
            &server,
            "POST",
            "/api/v1/namespaces/default/secrets",
            json!({"metadata": {"name": name}}),
        )
        .await;
    }
    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {
            "nodeName": "n1", "containers": [{"name": "c", "image": "i"}],
            "volumes": [{"name": "v", "secret": {"secretName": "used"}}],
        },
    });
    let (code, body) = admin(&server, "POST", "/api/v1/namespaces/default/pods", pod).await;
    assert_eq!(code, 201, "{body}");
    let node = |name: &str| User::new(format!("system:node:{name}"), [NODES]);
    let path = |name: &str| format!("/api/v1/namespaces/default/secrets/{name}");
    assert_eq!(get(&server, &node("n1"), &path("used")).await.0, 200);
    assert_eq!(get(&server, &node("n1"), &path("other")).await.0, 403);
    assert_eq!(get(&server, &node("n2"), &path("used")).await.0, 403);
}

#[tokio::test]
async fn reviews_look_at_field_selectors_as_requests_do() {
    let server = Server::in_memory().await.unwrap();
    let review = async |selector: Value| {
        let resource =
            json!({"verb": "list", "resource": "pods", "version": "v1", "fieldSelector": selector});
        let spec =
            json!({"user": "system:node:n1", "groups": [NODES], "resourceAttributes": resource});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let (code, answer) = admin(&server, "POST", path, json!({"spec": spec})).await;
        assert_eq!(code, 201, "{answer}");
        answer["status"]["allowed"] == true
    };
    let part = |operator: &str, values: &[&str]| {
        let part = json!({"key": "spec.nodeName", "operator": operator, "values": values});
        json!({"requirements": [part]})
    };
    assert!(review(json!({"rawSelector": "spec.nodeName=n1"})).await);
    assert!(review(part("In", &["n1"])).await);
    assert!(!review(json!({"rawSelector": "spec.nodeName=n2"})).await);
    assert!(!review(part("In", &["n2"])).await);
    assert!(!review(part("NotIn", &["n1"])).await);
    assert!(!review(part("In", &["n1", "n2"])).await);
    assert!(!review(Value::Null).await);
    let node = User::new("system:node:n1", [NODES]);
    let asked = br#"{"spec":{"namespace":"default"}}"#;
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let (_, answer) = send(&server, node, "POST", path, "application/json", asked).await;
    let status = &answer["status"];
    assert_eq!(status["incomplete"], true, "{answer}");
    assert_eq!(
        status["evaluationError"],
        "node authorizer does not support user rule resolution"
    );
}

#[tokio::test]
async fn a_node_does_not_change_what_was_counted_for_its_pods() {
    let config = Config {
        features: Features::default().with(Feature::DRANodeAllocatableResources, true),
        ..Config::default()
    };
    let server = with_config(config).await;
    let pod = json!({
        "metadata": {"name": "p"}, "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
    });
    let pods = "/api/v1/namespaces/default/pods";
    let (code, body) = admin(&server, "POST", pods, pod).await;
    assert_eq!(code, 201, "{body}");
    let patch = async |status: Value| {
        let node = User::new("system:node:n1", [NODES]);
        let body = json!({"status": status}).to_string();
        let kind = "application/merge-patch+json";
        let path = format!("{pods}/p/status");
        send(&server, node, "PATCH", &path, kind, body.as_bytes()).await
    };
    let counted =
        json!([{"resourceClaimName": "c", "containers": ["c"], "resources": {"cpu": "1"}}]);
    let (code, body) = patch(json!({"nodeAllocatableResourceClaimStatuses": counted})).await;
    let why = "node \"n1\" cannot update node allocatable resource claim statuses";
    assert_eq!(code, 403, "{body}");
    assert!(body["message"].as_str().unwrap().ends_with(why), "{body}");
    let (code, body) = patch(json!({"phase": "Running"})).await;
    assert_eq!(code, 200, "{body}");
}

#[tokio::test]
async fn a_token_lives_as_long_as_its_account() {
    let server = Server::in_memory().await.unwrap();
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    admin(
        &server,
        "POST",
        accounts,
        json!({"metadata": {"name": "bot"}}),
    )
    .await;
    let (code, body) = admin(
        &server,
        "POST",
        &format!("{accounts}/bot/token"),
        json!({"spec": {}}),
    )
    .await;
    assert_eq!(code, 201, "{body}");
    let review = json!({"spec": {"token": body["status"]["token"]}});
    let reviews = "/apis/authentication.k8s.io/v1/tokenreviews";
    let (_, answer) = admin(&server, "POST", reviews, review.clone()).await;
    assert_eq!(
        answer["status"]["user"]["username"], "system:serviceaccount:default:bot",
        "{answer}"
    );
    admin(&server, "DELETE", &format!("{accounts}/bot"), Value::Null).await;
    let (_, answer) = admin(&server, "POST", reviews, review).await;
    assert_eq!(answer["status"]["authenticated"], Value::Null, "{answer}");
    let forged = json!({"spec": {"token": "a.b.c"}});
    let (_, answer) = admin(&server, "POST", reviews, forged).await;
    assert!(answer["status"]["error"].is_string(), "{answer}");
}

#[tokio::test]
async fn a_group_alone_cannot_be_impersonated() {
    let server = Server::in_memory().await.unwrap();
    let request = http::Request::get(MAPS)
        .header("impersonate-group", "devs")
        .header("impersonate-extra-scopes", "view")
        .body(Full::new(Bytes::new()))
        .unwrap();
    let response = server.handle(request, Some(User::admin())).await;
    assert_eq!(response.status(), 400);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let status: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        status["message"],
        "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"devs\"}, \
         Extra:map[string][]string{\"scopes\":[]string{\"view\"}}} without impersonating a user name"
    );
}

/// Roles and bindings are not read again with every change: each kind of change must be taken over nevertheless.
#[tokio::test]
async fn every_change_of_roles_and_bindings_counts() {
    let server = Server::in_memory().await.unwrap();
    let jane = User::new("jane", Vec::<String>::new());
    let role = |kind: &str, verbs: Value| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "r"},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}],
        })
    };
    let binding = |kind: &str, role: &str, user: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "r"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": "r"},
            "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
        })
    };
    for (scope, role_kind, roles, binding_kind, bindings) in [
        (
            "",
            "ClusterRole",
            "clusterroles",
            "ClusterRoleBinding",
            "clusterrolebindings",
        ),
        (
            "/namespaces/default",
            "Role",
            "roles",
            "RoleBinding",
            "rolebindings",
        ),
    ] {
        let path = |plural: &str| format!("{RBAC}{scope}/{plural}");
        let granted = async || get(&server, &jane, MAPS).await.0 == 200;
        let send = async |method: &str, path: String, body: Value| {
            let (code, answer) = admin(&server, method, &path, body).await;
            assert!(code < 300, "{answer}");
        };
        assert!(!granted().await);
        // A binding may come before its role.
        send(
            "POST",
            path(bindings),
            binding(binding_kind, role_kind, "jane"),
        )
        .await;
        assert!(!granted().await);
        send("POST", path(roles), role(role_kind, json!(["get"]))).await;
        assert!(!granted().await);
        let (one_role, one_binding) = (path(&format!("{roles}/r")), path(&format!("{bindings}/r")));
        send("PUT", one_role.clone(), role(role_kind, json!(["list"]))).await;
        assert!(granted().await);
        send(
            "PUT",
            one_binding.clone(),
            binding(binding_kind, role_kind, "joe"),
        )
        .await;
        assert!(!granted().await);
        send(
            "PUT",
            one_binding.clone(),
            binding(binding_kind, role_kind, "jane"),
        )
        .await;
        assert!(granted().await);
        send("DELETE", one_role.clone(), Value::Null).await;
        assert!(!granted().await);
        send("POST", path(roles), role(role_kind, json!(["*"]))).await;
        assert!(granted().await);
        send("DELETE", one_binding, Value::Null).await;
        assert!(!granted().await);
        send("DELETE", one_role, Value::Null).await;
    }
}
