//! Cluster roles that collect the rules of others.

use serde_json::{Value, json};

use super::harness::Cluster;

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";

fn role(name: &str, label: &str, resource: Option<&str>, selects: Option<&str>) -> Value {
    let mut role = json!({"metadata": {"name": name, "labels": {label: "true"}}, "rules": []});
    if let Some(resource) = resource {
        role["rules"] = json!([{"verbs": ["get"], "apiGroups": [""], "resources": [resource]}]);
    }
    if let Some(label) = selects {
        let selector = json!({"matchLabels": {label: "true"}});
        role["aggregationRule"] = json!({"clusterRoleSelectors": [selector]});
    }
    role
}

fn resources(role: &Value) -> String {
    let rules = role["rules"].as_array().into_iter().flatten();
    let resources = rules.filter_map(|rule| rule["resources"][0].as_str());
    resources.collect::<Vec<_>>().join(" ")
}

/// Waits until a role holds rules on these resources.
async fn holds(cluster: &Cluster, name: &str, expected: &str) {
    let path = format!("{ROLES}/{name}");
    cluster
        .until(&path, expected, |role| resources(role) == expected)
        .await;
}

#[tokio::test]
async fn rules_follow_the_roles_that_are_selected() {
    let cluster = Cluster::start().await;
    for made in [
        role("all", "none", None, Some("part")),
        role("outer", "none", None, Some("whole")),
        role("a", "part", Some("pods"), None),
        role("b", "part", Some("nodes"), None),
        role("c", "other", Some("secrets"), None),
    ] {
        cluster.create(ROLES, made).await;
    }
    holds(&cluster, "all", "pods nodes").await;
    let labels = json!({"metadata": {"labels": {"part": "true"}}});
    cluster.patch(&format!("{ROLES}/c"), labels).await;
    holds(&cluster, "all", "pods nodes secrets").await;
    // What is collected can be collected again.
    let labels = json!({"metadata": {"labels": {"whole": "true"}}});
    cluster.patch(&format!("{ROLES}/all"), labels).await;
    holds(&cluster, "outer", "pods nodes secrets").await;
    let labels = json!({"metadata": {"labels": {"part": null}}});
    cluster.patch(&format!("{ROLES}/b"), labels).await;
    holds(&cluster, "outer", "pods secrets").await;
}

#[tokio::test]
async fn roles_that_select_each_other_come_to_rest() {
    let cluster = Cluster::start().await;
    for made in [
        role("x", "x", Some("pods"), Some("y")),
        role("y", "y", Some("pods"), Some("x")),
        role("self", "self", Some("pods"), Some("self")),
        role("part", "x", Some("nodes"), None),
    ] {
        cluster.create(ROLES, made).await;
    }
    holds(&cluster, "self", "").await;
    // `y` selects `x`, which selects `y`, and `part`.
    cluster
        .until(&format!("{ROLES}/x"), "the rules of part", |role| {
            resources(role).contains("nodes")
        })
        .await;
    cluster
        .until(&format!("{ROLES}/y"), "the rules of part", |role| {
            resources(role).contains("nodes")
        })
        .await;
}
