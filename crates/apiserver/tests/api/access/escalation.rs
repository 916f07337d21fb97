//! Users cannot grant permissions that they do not have, by any object, verb or encoding.

use allot_apiserver::Server;
use serde_json::{Value, json};

use super::kit::{RBAC, allow, binding, check, cluster_role, rules, send_as};
use crate::admin;

const ROLES: &str = "create get update patch delete|rbac.authorization.k8s.io|clusterroles roles";
const MUST: &str = "must have cluster-admin privileges to use the aggregationRule";

fn aggregation_rule(label: &str) -> Value {
    json!({"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]})
}

#[tokio::test]
async fn an_aggregation_rule_demands_all_rights() {
    let server = Server::in_memory().await.unwrap();
    let eve = allow(&server, "eve", ROLES).await;
    let everything = json!({"matchLabels": {"kubernetes.io/bootstrapping": "rbac-defaults"}});
    let aggregation = json!({"aggregationRule": {"clusterRoleSelectors": [everything]}});
    let refused = |name: &str| {
        let name = match name {
            "" => String::new(),
            name => format!(" {name:?}"),
        };
        format!("403 clusterroles.rbac.authorization.k8s.io{name} is forbidden: {MUST}")
    };
    let mut whole = cluster_role("own", "");
    whole["aggregationRule"] = aggregation["aggregationRule"].clone();
    let mut generated = whole.clone();
    generated["metadata"] = json!({"generateName": "own-"});
    let mut of_eve = cluster_role("eve", ROLES);
    of_eve["aggregationRule"] = aggregation["aggregationRule"].clone();
    let posts = &format!("POST {RBAC}/clusterroles");
    check(&server, &eve, posts, &whole, &refused("own")).await;
    let dry = &format!("POST {RBAC}/clusterroles?dryRun=All");
    check(&server, &eve, dry, &whole, &refused("own")).await;
    check(&server, &eve, posts, &generated, &refused("")).await;
    for request in [
        "PUT clusterroles/own",
        "PATCH clusterroles/own?fieldManager=m",
        "PATCH clusterroles/own?fieldManager=m&force=true&dryRun=All",
    ] {
        let request = request.replacen(' ', &format!(" {RBAC}/"), 1);
        check(&server, &eve, &request, &whole, &refused("own")).await;
    }
    for (request, body) in [
        ("PATCH clusterroles/eve", &aggregation),
        ("PATCH clusterroles/eve?fieldManager=m&force=true", &of_eve),
        ("PUT clusterroles/eve", &of_eve),
    ] {
        let request = request.replacen(' ', &format!(" {RBAC}/"), 1);
        check(&server, &eve, &request, body, &refused("eve")).await;
    }
    // Many verbs on everything are not all of them. The verb `*` on roles includes `escalate`.
    let root = allow(&server, "root", "create get list update|*|*; *|url|*").await;
    check(&server, &root, posts, &whole, &refused("own")).await;
    let all = allow(&server, "all", "*|*|*; *|url|*").await;
    check(&server, &all, posts, &whole, "201").await;
    // Nor may others touch what is there, not even to make it less.
    for body in [
        json!({"aggregationRule": null}),
        json!({"metadata": {"labels": {"a": "b"}}}),
    ] {
        let patch = &format!("PATCH {RBAC}/clusterroles/own");
        check(&server, &eve, patch, &body, &refused("own")).await;
    }
    let gone = json!({"metadata": {"ownerReferences": [], "finalizers": ["example.com/f"]}});
    check(
        &server,
        &eve,
        &format!("PATCH {RBAC}/clusterroles/own"),
        &gone,
        "200",
    )
    .await;
}

#[tokio::test]
async fn an_empty_aggregation_rule_collects_nothing() {
    let server = Server::in_memory().await.unwrap();
    let eve = allow(&server, "eve", ROLES).await;
    let mut role = cluster_role("own", "");
    role["aggregationRule"] = json!({"clusterRoleSelectors": []});
    let request = &format!("POST {RBAC}/clusterroles");
    check(
        &server,
        &eve,
        request,
        &role,
        "422 ClusterRole.rbac.authorization.k8s.io \"own\" is invalid",
    )
    .await;
}

#[tokio::test]
async fn escalate_and_bind_are_rights_of_their_own() {
    let server = Server::in_memory().await.unwrap();
    let group = "rbac.authorization.k8s.io";
    let eve = allow(
        &server,
        "eve",
        &format!("{ROLES}; escalate|{group}|clusterroles"),
    )
    .await;
    let mut role = cluster_role("own", "*|*|*");
    role["aggregationRule"] = aggregation_rule("x");
    let posts = &format!("POST {RBAC}/clusterroles");
    check(&server, &eve, posts, &role, "201").await;
    // By name it is a right to change one role; a POST has no name in its path.
    let bob = allow(
        &server,
        "bob",
        &format!("{ROLES}; escalate|{group}|clusterroles|one"),
    )
    .await;
    let one = cluster_role("one", "get|-|secrets");
    let missing = "403 clusterroles.rbac.authorization.k8s.io \"one\" is forbidden: user \"bob\" \
                   (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n\
                   {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}";
    check(&server, &bob, posts, &one, missing).await;
    let path = &format!("PUT {RBAC}/clusterroles/one");
    check(&server, &bob, path, &one, "201").await;
    // Binding a role takes its rights, or `bind` on it.
    let bindings = &format!("POST {RBAC}/clusterrolebindings");
    let may = format!("create|{group}|clusterrolebindings; bind|{group}|clusterroles|one");
    let carol = allow(&server, "carol", &may).await;
    check(
        &server,
        &carol,
        bindings,
        &binding("c1", "one", "carol"),
        "201",
    )
    .await;
    let refused =
        "403 clusterrolebindings.rbac.authorization.k8s.io \"c2\" is forbidden: user \"carol\"";
    check(
        &server,
        &carol,
        bindings,
        &binding("c2", "cluster-admin", "carol"),
        refused,
    )
    .await;
    let nothing = "404 clusterroles.rbac.authorization.k8s.io \"none\" not found";
    check(
        &server,
        &carol,
        bindings,
        &binding("c3", "none", "carol"),
        nothing,
    )
    .await;
}

#[tokio::test]
async fn any_change_of_a_role_takes_the_rights_in_it() {
    let server = Server::in_memory().await.unwrap();
    let eve = allow(&server, "eve", ROLES).await;
    let (code, _) = admin(
        &server,
        "POST",
        &format!("{RBAC}/clusterroles"),
        cluster_role("big", "*|*|*"),
    )
    .await;
    assert_eq!(code, 201);
    let refused = "403 clusterroles.rbac.authorization.k8s.io \"big\" is forbidden: user \"eve\"";
    // A label makes a role part of others.
    let label =
        json!({"metadata": {"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}});
    let patch = &format!("PATCH {RBAC}/clusterroles/big");
    check(&server, &eve, patch, &label, refused).await;
    let less = json!({"rules": rules("get|-|secrets; get|-|nodes")});
    let told = "403 clusterroles.rbac.authorization.k8s.io \"big\" is forbidden: user \"eve\" \
                (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n\
                {APIGroups:[\"\"], Resources:[\"nodes\"], Verbs:[\"get\"]}\n\
                {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}";
    check(&server, &eve, patch, &less, told).await;
    // Orphaning an object for the garbage collector grants nothing.
    let finalizer = json!({"metadata": {"finalizers": ["example.com/f"]}});
    check(&server, &eve, patch, &finalizer, "200").await;
    check(
        &server,
        &eve,
        patch,
        &json!({"metadata": {"finalizers": null}}),
        "200",
    )
    .await;
    // A new role of the same name is a new role.
    check(
        &server,
        &eve,
        &format!("DELETE {RBAC}/clusterroles/big"),
        &Value::Null,
        "200",
    )
    .await;
    let again = cluster_role("big", "*|*|*");
    check(
        &server,
        &eve,
        &format!("POST {RBAC}/clusterroles"),
        &again,
        refused,
    )
    .await;
    check(
        &server,
        &eve,
        &format!("PUT {RBAC}/clusterroles/big"),
        &again,
        refused,
    )
    .await;
    assert!(
        send_as(
            &server,
            &eve,
            &format!("GET {RBAC}/clusterroles/big"),
            &Value::Null
        )
        .await
        .starts_with("404")
    );
}

#[tokio::test]
async fn the_role_of_a_binding_never_changes() {
    let server = Server::in_memory().await.unwrap();
    let admin_user = allot_apiserver::identity::User::admin();
    let eve = allow(
        &server,
        "eve",
        "create update patch bind|rbac.authorization.k8s.io|*",
    )
    .await;
    let bindings = &format!("POST {RBAC}/clusterrolebindings");
    check(&server, &eve, bindings, &binding("b", "view", "eve"), "201").await;
    let other = binding("b", "cluster-admin", "eve");
    for user in [&eve, &admin_user] {
        let put = &format!("PUT {RBAC}/clusterrolebindings/b");
        check(&server, user, put, &other, "422").await;
        let patch = &format!("PATCH {RBAC}/clusterrolebindings/b?fieldManager=m&force=true");
        check(&server, user, patch, &other, "422").await;
    }
}

#[tokio::test]
async fn a_missing_role_of_the_author_is_reported() {
    let server = Server::in_memory().await.unwrap();
    let eve = allow(&server, "eve", ROLES).await;
    let lost = binding("lost", "none", "eve");
    let (code, _) = admin(
        &server,
        "POST",
        &format!("{RBAC}/clusterrolebindings"),
        lost,
    )
    .await;
    assert_eq!(code, 201);
    let role = cluster_role("r", "get|-|pods");
    let found = send_as(&server, &eve, &format!("POST {RBAC}/clusterroles"), &role).await;
    let end = "; resolution errors: [clusterroles.rbac.authorization.k8s.io \"none\" not found]";
    assert!(found.ends_with(end), "{found}");
}
