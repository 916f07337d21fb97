//! Definitions in API groups of built-in kinds.

use allot_apiserver::Server;
use allot_testing::wait::until;
use serde_json::{Value, json};

use crate::admin;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A definition of a kind with these versions, the first of which is stored.
fn definition(group: &str, scope: &str, (plural, kind): (&str, &str), versions: &[&str]) -> Value {
    let versions = versions.iter().enumerate().map(|(index, name)| {
        json!({
            "name": name, "served": true, "storage": index == 0,
            "schema": {"openAPIV3Schema": {"type": "object"}},
        })
    });
    json!({
        "metadata": {
            "name": format!("{plural}.{group}"),
            "annotations": {"api-approved.kubernetes.io": "unapproved, a test"},
        },
        "spec": {
            "group": group, "scope": scope,
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
            "versions": versions.collect::<Vec<_>>(),
        },
    })
}

/// Waits until there is an object at a path, and returns it.
async fn wait_for_object(server: &Server, path: &str) -> Value {
    until(&format!("{path} is found"), || async {
        let (code, found) = admin(server, "GET", path, Value::Null).await;
        (code == 200).then_some(found).ok_or(code)
    })
    .await
}

/// Definitions in the group of built-in kinds hide none of them, and their deletion keeps the objects of these kinds.
#[tokio::test]
async fn built_in_kinds_come_before_definitions() {
    let server = Server::in_memory().await.unwrap();
    let group = "/apis/networking.k8s.io";
    let policies = format!("{group}/v1/namespaces/default/networkpolicies");
    let policy = json!({"metadata": {"name": "kept"}, "spec": {"podSelector": {}}});
    assert_eq!(admin(&server, "POST", &policies, policy).await.0, 201);
    // It is made again with those of the definitions.
    let service = "/apis/apiregistration.k8s.io/v1/apiservices/v1.networking.k8s.io";
    assert_eq!(admin(&server, "DELETE", service, Value::Null).await.0, 200);
    // When the last one is served, those before it have been processed.
    for (plural, kind, versions) in [
        ("networkpolicies", "NetworkPolicy", &["v1"][..]),
        ("foos", "Foo", &["v1"]),
        ("bars", "Bar", &["v7", "v1"]),
    ] {
        let definition = definition("networking.k8s.io", "Namespaced", (plural, kind), versions);
        let (code, answer) = admin(&server, "POST", DEFINITIONS, definition).await;
        assert_eq!(code, 201, "{answer}");
    }
    let bars = format!("{group}/v7/namespaces/default/bars");
    wait_for_object(&server, &bars).await;
    let again = wait_for_object(&server, service).await;
    let labels = &again["metadata"]["labels"];
    assert_eq!(
        labels["kube-aggregator.kubernetes.io/automanaged"],
        "onstart"
    );
    let shown = admin(&server, "GET", &format!("{group}/v1"), Value::Null)
        .await
        .1;
    let named = |plural: &str| {
        let resources = shown["resources"].as_array().unwrap();
        resources.iter().filter(|it| it["name"] == plural).count()
    };
    assert_eq!(["networkpolicies", "foos", "bars"].map(named), [1, 0, 0]);
    for plural in ["foos", "bars"] {
        let path = format!("{group}/v1/namespaces/default/{plural}");
        assert_eq!(admin(&server, "GET", &path, Value::Null).await.0, 404);
    }
    let named = format!("{DEFINITIONS}/networkpolicies.networking.k8s.io");
    assert_eq!(admin(&server, "DELETE", &named, Value::Null).await.0, 200);
    until("the definition is gone", || async {
        let code = admin(&server, "GET", &named, Value::Null).await.0;
        (code == 404).then_some(()).ok_or(code)
    })
    .await;
    let kept = format!("{policies}/kept");
    assert_eq!(admin(&server, "GET", &kept, Value::Null).await.0, 200);
}

/// The attack: a kind in the group of webhooks and policies, which do not apply to it.
#[tokio::test]
async fn policies_are_asked_about_kinds_in_their_group() {
    let server = Server::in_memory().await.unwrap();
    let group = "/apis/admissionregistration.k8s.io";
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"resourceRules": [
            {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["CREATE"]}]},
        "validations": [{"expression": "!object.metadata.name.startsWith('bad')"}],
    }});
    let binding = json!({
        "metadata": {"name": "p"}, "spec": {"policyName": "p", "validationActions": ["Deny"]},
    });
    for (path, object) in [
        ("validatingadmissionpolicies", policy),
        ("validatingadmissionpolicybindings", binding),
    ] {
        let (code, answer) = admin(&server, "POST", &format!("{group}/v1/{path}"), object).await;
        assert_eq!(code, 201, "{answer}");
    }
    let definition = definition(
        "admissionregistration.k8s.io",
        "Cluster",
        ("foos", "Foo"),
        &["v7"],
    );
    let (code, answer) = admin(&server, "POST", DEFINITIONS, definition).await;
    assert_eq!(code, 201, "{answer}");
    let foos = format!("{group}/v7/foos");
    wait_for_object(&server, &foos).await;
    let foo = |name: &str| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v7", "kind": "Foo", "metadata": {"name": name},
        })
    };
    let (code, answer) = admin(&server, "POST", &foos, foo("bad")).await;
    assert_eq!(code, 422, "{answer}");
    assert_eq!(admin(&server, "POST", &foos, foo("good")).await.0, 201);
    // What could take the policy away stays possible.
    let other = json!({"metadata": {"name": "bad"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    let bindings = format!("{group}/v1/validatingadmissionpolicybindings");
    assert_eq!(admin(&server, "POST", &bindings, other).await.0, 201);
}
