//! Impersonation, in all modes.

use allot_apiserver::identity::User;
use allot_apiserver::{Server, config::Config};
use allot_model::features::{Features, Release};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::{admin, with_config};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SELF: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// Lets a user do something in the whole cluster.
async fn allow(server: &Server, user: &str, rules: Value) {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": user}, "rules": rules});
    let binding = json!({
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
    });
    for (plural, object) in [("clusterroles", role), ("clusterrolebindings", binding)] {
        let (code, body) = admin(server, "POST", &format!("{rbac}/{plural}"), object).await;
        assert_eq!(code, 201, "{body}");
    }
}

fn rule(verb: &str, group: &str, resource: &str) -> Value {
    json!({"verbs": [verb], "apiGroups": [group], "resources": [resource]})
}

/// Sends a request as `caller` with impersonation headers; returns the code with the message or, for a self review, the
/// groups.
async fn check(
    server: &Server,
    caller: &User,
    request: &str,
    wanted: &[(&str, &str)],
    expected: &str,
) {
    let (method, path) = request.split_once(' ').unwrap();
    let mut builder = http::Request::builder().method(method).uri(path);
    for (name, value) in wanted {
        builder = builder.header(format!("impersonate-{name}"), *value);
    }
    let body = match method {
        "GET" => Bytes::new(),
        _ => Bytes::from(r#"{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}"#),
    };
    let request = builder
        .header("content-type", "application/json")
        .body(Full::new(body))
        .unwrap();
    let response = server.handle(request, Some(caller.clone())).await;
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let groups = body["status"]["userInfo"]["groups"].as_array();
    let found = match groups {
        Some(groups) => groups
            .iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(" "),
        None => body["message"].as_str().unwrap_or_default().to_owned(),
    };
    assert_eq!(format!("{code} {found}").trim_end(), expected, "{wanted:?}");
}

fn user(name: &str) -> User {
    User::new(name, Vec::<String>::new())
}

#[tokio::test]
async fn a_refusal_tells_of_the_first_way() {
    let server = Server::in_memory().await.unwrap();
    let bob = user("bob");
    let list = &format!("GET {MAPS}");
    let one = &format!("GET {MAPS}/settings");
    for (request, wanted, expected) in [
        (
            list,
            "alice",
            "403 configmaps is forbidden: User \"bob\" cannot impersonate-on:user-info:list resource \"configmaps\" in \
             API group \"\" in the namespace \"default\"",
        ),
        (
            one,
            "system:node:n1",
            "403 configmaps \"settings\" is forbidden: User \"bob\" cannot impersonate-on:arbitrary-node:get resource \
             \"configmaps\" in API group \"\" in the namespace \"default\"",
        ),
        (
            list,
            "system:serviceaccount:default:bot",
            "403 configmaps is forbidden: User \"bob\" cannot impersonate-on:serviceaccount:list resource \
             \"configmaps\" in API group \"\" in the namespace \"default\"",
        ),
    ] {
        check(&server, &bob, request, &[("user", wanted)], expected).await;
    }
    // A node with groups cannot be impersonated in a constrained mode.
    check(
        &server,
        &bob,
        list,
        &[("user", "system:node:n1"), ("group", "system:nodes")],
        "403 users \"system:node:n1\" is forbidden: User \"bob\" cannot impersonate resource \"users\" in API group \
         \"\" at the cluster scope",
    )
    .await;
}

#[tokio::test]
async fn the_old_verb_still_leads_to_everybody() {
    let server = Server::in_memory().await.unwrap();
    let mut old = rule("impersonate", "", "users");
    old["resourceNames"] = json!(["alice"]);
    allow(&server, "bob", json!([old])).await;
    let list = &format!("GET {MAPS}");
    let bob = user("bob");
    check(
        &server,
        &bob,
        list,
        &[("user", "alice")],
        "403 configmaps is forbidden: User \"alice\" cannot list resource \"configmaps\" in API group \"\" in the \
         namespace \"default\"",
    )
    .await;
    // The way that led to the goal is tried first from now on, and its refusal told.
    check(
        &server,
        &bob,
        list,
        &[("user", "carol")],
        "403 users \"carol\" is forbidden: User \"bob\" cannot impersonate resource \"users\" in API group \"\" at the \
         cluster scope",
    )
    .await;
}

#[tokio::test]
async fn a_constrained_way_leads_to_some_requests_as_some_identities() {
    let server = Server::in_memory().await.unwrap();
    let group = "authentication.k8s.io";
    allow(
        &server,
        "eve",
        json!([
            rule("impersonate:user-info", group, "users"),
            rule("impersonate:user-info", group, "groups"),
            rule(
                "impersonate-on:user-info:create",
                group,
                "selfsubjectreviews"
            ),
        ]),
    )
    .await;
    let review = &format!("POST {SELF}");
    let eve = user("eve");
    let alice = ("user", "alice");
    check(&server, &eve, review, &[alice], "201 system:authenticated").await;
    let devs = ("group", "devs");
    check(
        &server,
        &eve,
        review,
        &[alice, devs],
        "201 devs system:authenticated",
    )
    .await;
    for (wanted, expected) in [
        (
            ("uid", "1"),
            "403 uids.authentication.k8s.io \"1\" is forbidden: User \"eve\" cannot impersonate:user-info resource \
             \"uids\" in API group \"authentication.k8s.io\" at the cluster scope",
        ),
        (
            ("group", "system:masters"),
            "403 groups.authentication.k8s.io \"system:masters\" is forbidden: User \"eve\" cannot \
             impersonate:user-info resource \"groups\" in API group \"authentication.k8s.io\" at the cluster scope: \
             impersonating the system:masters group is not allowed",
        ),
        (
            ("extra-scopes", "view"),
            "403 userextras.authentication.k8s.io is forbidden: User \"eve\" cannot impersonate:user-info resource \
             \"userextras\" in API group \"authentication.k8s.io\" at the cluster scope: impersonating an invalid key \
             in extra is not allowed: extra.key: Invalid value: \"scopes\": must be a domain-prefixed path (such as \
             \"acme.io/foo\")",
        ),
        (
            ("extra-example.com%2Fscopes", "view"),
            "403 userextras.authentication.k8s.io \"view\" is forbidden: User \"eve\" cannot impersonate:user-info \
             resource \"userextras/example.com/scopes\" in API group \"authentication.k8s.io\" at the cluster scope",
        ),
    ] {
        check(&server, &eve, review, &[alice, wanted], expected).await;
    }
    let list = &format!("GET {MAPS}");
    check(
        &server,
        &eve,
        list,
        &[alice],
        "403 configmaps is forbidden: User \"eve\" cannot impersonate-on:user-info:list resource \"configmaps\" in API \
         group \"\" in the namespace \"default\"",
    )
    .await;
}

#[tokio::test]
async fn a_node_brings_its_groups() {
    let server = Server::in_memory().await.unwrap();
    let review = &format!("POST {SELF}");
    let (node, group) = (("user", "system:node:n1"), ("group", "system:nodes"));
    let groups = "201 system:nodes system:authenticated";
    check(&server, &User::admin(), review, &[node], groups).await;
    check(&server, &User::admin(), review, &[node, group], groups).await;
    let masters = ("group", "system:masters");
    let groups = "201 system:masters system:authenticated";
    let root = ("user", "root");
    check(&server, &User::admin(), review, &[root, masters], groups).await;
    // The agent of a node that it is bound to.
    let verb = "impersonate:associated-node";
    let on = "impersonate-on:associated-node:create";
    let name = "system:serviceaccount:default:agent";
    let group = "authentication.k8s.io";
    allow(
        &server,
        name,
        json!([
            rule(verb, group, "nodes"),
            rule(on, group, "selfsubjectreviews")
        ]),
    )
    .await;
    let mut agent = user(name);
    let key = "authentication.kubernetes.io/node-name".to_owned();
    agent.extra.insert(key, vec!["n1".to_owned()]);
    let groups = "201 system:nodes system:authenticated";
    check(&server, &agent, review, &[node], groups).await;
    check(
        &server,
        &agent,
        review,
        &[("user", "system:node:n2")],
        "403 selfsubjectreviews.authentication.k8s.io is forbidden: User \"system:serviceaccount:default:agent\" cannot \
         impersonate-on:arbitrary-node:create resource \"selfsubjectreviews\" in API group \"authentication.k8s.io\" at \
         the cluster scope",
    )
    .await;
}

#[tokio::test]
async fn releases_before_have_the_old_way_alone() {
    let mut without = Features::default();
    without.set("ConstrainedImpersonation=false").unwrap();
    for features in [Features::of(Release::new(35)), without] {
        let config = Config {
            features,
            ..Config::default()
        };
        let server = with_config(config).await;
        check(
            &server,
            &user("bob"),
            &format!("GET {MAPS}"),
            &[("user", "alice")],
            "403 users \"alice\" is forbidden: User \"bob\" cannot impersonate resource \"users\" in API group \"\" \
             at the cluster scope",
        )
        .await;
    }
}

/// As kube-apiserver 1.36 does, an empty UID counts as none; alone it is an error, so that the request does not run as
/// its caller.
#[tokio::test]
async fn an_empty_uid_is_none() {
    let server = Server::in_memory().await.unwrap();
    let review = &format!("POST {SELF}");
    let (jane, empty) = (("user", "jane"), ("uid", ""));
    let groups = "201 system:authenticated";
    check(&server, &User::admin(), review, &[jane, empty], groups).await;
    let verb = "impersonate:user-info";
    let group = "authentication.k8s.io";
    let on = "impersonate-on:user-info:create";
    let rules = json!([
        rule(verb, group, "users"),
        rule(on, group, "selfsubjectreviews")
    ]);
    allow(&server, "carol", rules).await;
    check(&server, &user("carol"), review, &[jane, empty], groups).await;
    let refused = "403 uids.authentication.k8s.io \"u\" is forbidden: User \"carol\" cannot impersonate:user-info \
                   resource \"uids\" in API group \"authentication.k8s.io\" at the cluster scope";
    check(
        &server,
        &user("carol"),
        review,
        &[jane, ("uid", "u")],
        refused,
    )
    .await;
    let alone = "400 requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string(nil), \
                 Extra:map[string][]string(nil)} without impersonating a user name";
    check(&server, &User::admin(), review, &[empty], alone).await;
    check(
        &server,
        &User::admin(),
        review,
        &[("user", ""), empty],
        alone,
    )
    .await;
}

/// What of a claim's status needs a permission of its own is refused with the whole message of that refusal.
#[tokio::test]
async fn a_refused_part_of_a_status_tells_the_whole_refusal() {
    let server = Server::in_memory().await.unwrap();
    allow(
        &server,
        "jane",
        json!([rule("patch", "resource.k8s.io", "resourceclaims/status")]),
    )
    .await;
    let claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
    let claim = json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [
        {"name": "r", "exactly": {"deviceClassName": "d"}}]}}});
    let (code, body) = admin(&server, "POST", claims, claim).await;
    assert_eq!(code, 201, "{body}");
    let allocation = json!({"devices": {"results": [
        {"request": "r", "driver": "d.example.com", "pool": "p", "device": "x"}]}});
    let request = http::Request::builder()
        .method("PATCH")
        .uri(format!("{claims}/c/status"))
        .header("content-type", "application/merge-patch+json")
        .body(Full::new(Bytes::from(
            json!({"status": {"allocation": allocation}}).to_string(),
        )))
        .unwrap();
    let response = server.handle(request, Some(user("jane"))).await;
    assert_eq!(response.status(), 422);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let refusal = "resourceclaims.resource.k8s.io is forbidden: User \"jane\" cannot patch resource \
                   \"resourceclaims/binding\" in API group \"resource.k8s.io\" at the cluster scope";
    let message = body["message"].as_str().unwrap_or_default();
    assert!(message.contains(refusal), "{message}");
}
