//! Two spellings of a request are the same request: writing a path or a query in another way gains nothing.

use serde_json::{Value, json};

use super::kit::{RBAC, send_as, user};
use crate::admin;
use crate::api::limits::server;
use allot_apiserver::Limits;

const TEAM: &str = "/api/v1/namespaces/team";

/// A server on which jane may read the config maps of the namespace `team`, and the secret `mine` there by its name.
async fn server_with_objects() -> allot_apiserver::Server {
    let server = server(Limits::default()).await;
    let create = |path: String, object: Value| {
        let server = server.clone();
        async move {
            let (code, made) = admin(&server, "POST", &path, object).await;
            assert_eq!(code, 201, "{made}");
        }
    };
    create(
        "/api/v1/namespaces".to_owned(),
        json!({"metadata": {"name": "team"}}),
    )
    .await;
    for name in ["mine", "theirs"] {
        create(
            format!("{TEAM}/secrets"),
            json!({"metadata": {"name": name}, "stringData": {"password": name}}),
        )
        .await;
        create(
            format!("{TEAM}/configmaps"),
            json!({"metadata": {"name": name}}),
        )
        .await;
    }
    let rules = json!([
        {"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["configmaps"]},
        {"verbs": ["get", "list", "deletecollection"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["mine"]},
    ]);
    let role = json!({"metadata": {"name": "reader"}, "rules": rules});
    create(format!("{RBAC}/namespaces/team/roles"), role).await;
    let binding = json!({
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}],
    });
    create(format!("{RBAC}/namespaces/team/rolebindings"), binding).await;
    server
}

#[tokio::test]
async fn no_spelling_of_a_path_leads_around_the_rules() {
    let server = server_with_objects().await;
    let jane = user("jane");
    for (request, expected) in [
        ("GET /api/v1/namespaces/team/configmaps/mine", "200"),
        ("GET /api/v1/namespaces/team/secrets/mine", "200"),
        ("GET /api/v1/namespaces/team/secrets/theirs", "403"),
        (
            "GET /api/v1/namespaces/team/configmaps/../secrets/theirs",
            "403",
        ),
        (
            "GET /api/v1/namespaces/team/configmaps/%2e%2e/secrets/theirs",
            "403",
        ),
        (
            "GET /api/v1/namespaces/team/configmaps/mine/../../secrets/theirs",
            "403",
        ),
        ("GET /api/v1/namespaces/team%2fsecrets/theirs", "403"),
        ("GET /api/v1/namespaces/team/secrets%2ftheirs", "403"),
        (
            "GET /api/v1/namespaces/team/secrets/mine%2f..%2ftheirs",
            "403",
        ),
        ("GET /api/v1/namespaces/team/secrets//theirs", "403"),
        ("GET /api/v1/namespaces/team//secrets/theirs", "403"),
        ("GET /api/v1//namespaces/team/secrets/theirs", "403"),
        ("GET //api/v1/namespaces/team/secrets/theirs", "403"),
        ("GET /api/v1/namespaces/team/secrets/theirs/", "403"),
        ("GET /api/v1/namespaces/team/secrets/theirs?", "403"),
        ("GET /apis//v1/namespaces/team/secrets/theirs", "403"),
        ("GET /api/v1/watch/namespaces/team/secrets/theirs", "403"),
        ("GET /api/v1/namespaces/TEAM/configmaps", "403"),
        ("GET /api/v1/namespaces/team/Secrets/theirs", "403"),
        ("GET /api/v1/namespaces/team/secrets/mine%00theirs", "403"),
        ("GET /api/v1/namespaces/%20team/secrets/mine", "403"),
        ("GET /API/v1/namespaces/team/secrets/theirs", "403"),
        // What is allowed is about exactly what is named.
        ("GET /api/v1/namespaces/team/secrets/mine/status", "403"),
        ("GET /api/v1/namespaces/team/configmaps/mine/x", "403"),
    ] {
        let found = send_as(&server, &jane, request, &Value::Null).await;
        assert!(found.starts_with(expected), "{request}: {found}");
    }
}

/// The permissions of a user in one namespace applied to every other one via `namespaces/own/namespaces/other`.
#[tokio::test]
async fn regression_a_namespace_is_in_no_other() {
    let server = server_with_objects().await;
    let binding = json!({
        "metadata": {"name": "owner"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "User", "name": "owner", "apiGroup": "rbac.authorization.k8s.io"}],
    });
    let bindings = format!("{RBAC}/namespaces/team/rolebindings");
    assert_eq!(admin(&server, "POST", &bindings, binding).await.0, 201);
    let other = json!({"metadata": {"name": "other"}});
    let (code, _) = admin(&server, "POST", "/api/v1/namespaces", other.clone()).await;
    assert_eq!(code, 201);
    let root = allot_apiserver::identity::User::admin();
    for user in [&user("owner"), &root] {
        for (request, body) in [
            ("GET namespaces", &Value::Null),
            ("POST namespaces", &json!({"metadata": {"name": "new"}})),
            ("GET namespaces/other", &Value::Null),
            ("GET namespaces/other/status", &Value::Null),
            ("PUT namespaces/other", &other),
            ("PUT namespaces/other/status", &other),
            ("PUT namespaces/other/finalize", &other),
            ("PATCH namespaces/other", &other),
            ("PATCH namespaces/other?fieldManager=m", &other),
            ("PATCH namespaces/other/status", &other),
            ("DELETE namespaces/other", &Value::Null),
            ("DELETE namespaces", &Value::Null),
            ("GET nodes", &Value::Null),
        ] {
            let (method, path) = request.split_once(' ').unwrap();
            let request = format!("{method} {TEAM}/{path}");
            let found = send_as(&server, user, &request, body).await;
            assert!(found.starts_with("404"), "{request}: {found}");
            let watched = format!("GET /api/v1/watch/namespaces/team/{path}");
            let found = send_as(&server, user, &watched, &Value::Null).await;
            assert!(found.starts_with("40"), "{watched}: {found}");
        }
        for request in [format!("GET {TEAM}"), format!("GET {TEAM}/status")] {
            assert_eq!(send_as(&server, user, &request, &Value::Null).await, "200");
        }
    }
    let refused = send_as(
        &server,
        &user("owner"),
        "GET /api/v1/namespaces/other",
        &Value::Null,
    )
    .await;
    assert!(refused.starts_with("403"), "{refused}");
}

#[tokio::test]
async fn no_spelling_of_a_query_leads_around_the_rules() {
    let server = server_with_objects().await;
    let jane = user("jane");
    for (query, names) in [
        ("fieldSelector=metadata.name%3Dmine", Ok("mine")),
        ("fieldSelector=metadata.name==mine", Ok("mine")),
        ("fieldSelector=metadata.name=theirs", Err("403")),
        ("fieldSelector=metadata.name!=mine", Err("403")),
        ("", Err("403")),
        // The first of several counts for the rules, and then for the answer.
        (
            "fieldSelector=metadata.name=mine&fieldSelector=",
            Ok("mine"),
        ),
        (
            "fieldSelector=metadata.name=mine&fieldSelector=metadata.name=theirs",
            Ok("mine"),
        ),
        (
            "fieldSelector=&fieldSelector=metadata.name=mine",
            Err("403"),
        ),
        (
            "fieldSelector=metadata.name=mine,metadata.name=theirs",
            Ok(""),
        ),
        ("fieldSelector=metadata.name=mine;limit=1", Err("")),
        ("FieldSelector=metadata.name=mine", Err("403")),
        ("fieldSelector=metadata.name=", Err("403")),
        ("fieldSelector=metadata.name=../secrets/mine", Err("403")),
        ("fieldSelector=metadata.name=mine&watch=1", Err("403")),
        (
            "fieldSelector=metadata.name=mine&watch=false&watch=true",
            Ok("mine"),
        ),
        // Values are no fields that can be selected by.
        (
            "fieldSelector=metadata.name=mine,data.password=bWluZQ",
            Err("400"),
        ),
    ] {
        let path = format!("{TEAM}/secrets?{query}");
        let (code, list) = crate::send(&server, jane.clone(), "GET", &path, "", b"").await;
        match names {
            Ok(names) => {
                assert_eq!(code, 200, "{query}: {list}");
                let items = list["items"].as_array().unwrap();
                let found: Vec<&str> = items
                    .iter()
                    .map(|it| it["metadata"]["name"].as_str().unwrap())
                    .collect();
                assert_eq!(found.join(" "), names, "{query}");
            }
            Err(refused) => {
                assert!(
                    code >= 400 && code.to_string().starts_with(refused),
                    "{query}: {code} {list}"
                );
            }
        }
    }
    // The name in a selector restricts no deletion: the permission is that for the whole collection, as upstream.
    let all = format!("DELETE {TEAM}/secrets");
    assert!(
        send_as(&server, &jane, &all, &Value::Null)
            .await
            .starts_with("403")
    );
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
    let both = format!(
        "{all}?fieldSelector=metadata.name=mine&fieldSelector=metadata.name=theirs&dryRun=All"
    );
    let one = format!("{all}?fieldSelector=metadata.name=mine");
    for request in [both, one] {
        let answer = send_as(&server, &jane, &request, &options).await;
        assert!(answer.starts_with("403"), "{answer}");
    }
    for name in ["mine", "theirs"] {
        let path = format!("{TEAM}/secrets/{name}");
        assert_eq!(admin(&server, "GET", &path, Value::Null).await.0, 200);
    }
}

/// The attack: a stranger asks for things that do not exist, and each of the names stayed in the metrics.
#[tokio::test]
async fn regression_names_that_clients_choose_are_no_labels() {
    let server = server(Limits::default()).await;
    let stranger = allot_apiserver::identity::User::anonymous();
    for path in [
        "/api/v1/namespaces/x/pods/p/chosen",
        "/api/v1/namespaces/x/pods/p/chosen/further",
        "/api/v1/nodes/n/chosen",
        "/api/chosen/pods",
        "/apis/apps/chosen/deployments",
        "/apis/apps/v1/namespaces/chosen/chosen",
        "/apis/chosen/v1/pods",
        "/chosen",
    ] {
        for method in ["GET", "POST", "CHOSEN"] {
            let (code, _) = crate::send(&server, stranger.clone(), method, path, "", b"").await;
            assert!((400..500).contains(&code), "{method} {path}: {code}");
        }
    }
    let pods = "/api/v1/namespaces/x/pods/p/log";
    crate::send(&server, stranger, "GET", pods, "", b"").await;
    let (_, metrics) = admin(&server, "GET", "/metrics", Value::Null).await;
    let metrics = metrics.as_str().unwrap();
    let known = r#"code="403",component="apiserver",dry_run="",group="",resource="pods",scope="resource",subresource="log","#;
    assert!(metrics.contains(known), "{metrics}");
    let chosen = metrics.to_lowercase();
    let chosen: Vec<&str> = chosen.lines().filter(|it| it.contains("chosen")).collect();
    assert!(chosen.is_empty(), "{chosen:?}");
}

/// The attack: a tenant binds a large role to itself many times, and asks for its rules. They were copied and told once for each
/// binding, hundreds of megabytes.
#[tokio::test]
async fn regression_the_rules_of_a_user_are_told_up_to_a_bound() {
    let server = server_with_objects().await;
    let names: Vec<String> = (0..20_000).map(|it| format!("name-{it:020}")).collect();
    let rule =
        json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": names});
    let create = async |kind: &str, object: Value| {
        let path = format!("{RBAC}/namespaces/team/{kind}");
        let (code, made) = admin(&server, "POST", &path, object).await;
        assert_eq!(code, 201, "{made}");
    };
    let role = json!({"metadata": {"name": "large"}, "rules": [rule]});
    create("roles", role).await;
    for number in 0..20 {
        let binding = json!({
            "metadata": {"name": format!("large-{number}")},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "large"},
            "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}],
        });
        create("rolebindings", binding).await;
    }
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let body = json!({"spec": {"namespace": "team"}}).to_string();
    let jane = user("jane");
    let (code, review) = crate::send(
        &server,
        jane,
        "POST",
        path,
        "application/json",
        body.as_bytes(),
    )
    .await;
    assert_eq!(code, 201, "{review}");
    assert_eq!(review["status"]["incomplete"], true);
    assert!(review["status"]["evaluationError"].is_string());
    let told = review["status"].to_string().len();
    assert!((1 << 20..8 << 20).contains(&told), "{told}");
}
