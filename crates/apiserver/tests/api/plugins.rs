//! Admission plugins that need more than an object: namespaces that are made, and what nodes declare.

use allot_apiserver::{Config, Server};
use serde_json::{Value, json};

use crate::{admin, with_config};

async fn server(enabled: &[&str]) -> Server {
    with_config(Config {
        enabled_admission: enabled.iter().map(ToString::to_string).collect(),
        disabled_admission: vec!["ServiceAccount".to_owned()],
        ..Config::default()
    })
    .await
}

async fn code(server: &Server, method: &str, path: &str, body: Value) -> u16 {
    admin(server, method, path, body).await.0
}

#[tokio::test]
async fn a_namespace_is_made_for_the_first_object_in_it() {
    let server = server(&["NamespaceAutoProvision"]).await;
    let map = || json!({"metadata": {"name": "m"}});
    let maps = |namespace: &str| format!("/api/v1/namespaces/{namespace}/configmaps");
    // Not for a dry run, and not for what is no creation.
    let dry = format!("{}?dryRun=All", maps("new"));
    assert_eq!(code(&server, "POST", &dry, map()).await, 404);
    let one = format!("{}/m", maps("new"));
    assert_eq!(code(&server, "DELETE", &one, Value::Null).await, 404);
    let path = "/api/v1/namespaces/new";
    assert_eq!(code(&server, "GET", path, Value::Null).await, 404);

    assert_eq!(code(&server, "POST", &maps("new"), map()).await, 201);
    let (_, namespace) = admin(&server, "GET", path, Value::Null).await;
    assert_eq!(namespace["status"]["phase"], "Active");
    assert_eq!(namespace["spec"]["finalizers"], json!(["kubernetes"]));
    let label = &namespace["metadata"]["labels"]["kubernetes.io/metadata.name"];
    assert_eq!(label, "new");

    let (code, answer) = admin(&server, "POST", &maps("No"), map()).await;
    let message = answer["message"].as_str().unwrap();
    let expected = "configmaps \"m\" is forbidden: Namespace \"No\" is invalid: metadata.name: ";
    assert!(code == 403 && message.starts_with(expected), "{message}");
}

#[tokio::test]
async fn the_namespace_that_is_made_is_subject_to_policies() {
    let server = server(&["NamespaceAutoProvision"]).await;
    let group = "/apis/admissionregistration.k8s.io/v1";
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["namespaces"]});
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "object.metadata.name != 'new'", "message": "no new ones"}],
    }});
    let path = format!("{group}/validatingadmissionpolicies");
    assert_eq!(code(&server, "POST", &path, policy).await, 201);
    let binding = json!({"metadata": {"name": "p"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}});
    let path = format!("{group}/validatingadmissionpolicybindings");
    assert_eq!(code(&server, "POST", &path, binding).await, 201);
    let map = json!({"metadata": {"name": "m"}});
    let maps = "/api/v1/namespaces/new/configmaps";
    let (code, answer) = admin(&server, "POST", maps, map).await;
    let message = answer["message"].as_str().unwrap();
    assert!(
        code == 403 && message.ends_with("no new ones"),
        "{code} {message}"
    );
}

#[tokio::test]
async fn a_pod_on_a_node_changes_only_in_ways_that_the_node_declares() {
    let server = server(&[]).await;
    let node = json!({"metadata": {"name": "n"}, "status": {
        "allocatable": {"cpu": "8", "memory": "8Gi"}, "declaredFeatures": [],
    }});
    assert_eq!(code(&server, "POST", "/api/v1/nodes", node).await, 201);
    let pods = "/api/v1/namespaces/default/pods";
    let amounts = |cpu: &str| json!({"requests": {"cpu": cpu}, "limits": {"cpu": cpu}});
    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "nodeName": "n", "resources": amounts("2"),
        "containers": [{"name": "c", "image": "i", "resources": amounts("1")}],
    }});
    assert_eq!(code(&server, "POST", pods, pod).await, 201);
    let resize = format!("{pods}/p/resize");
    let change = |key: &str, value: Value| json!({"spec": {key: value}});
    let containers = json!([{"name": "c", "image": "i", "resources": amounts("1500m")}]);
    let (found, answer) = admin(&server, "PATCH", &resize, change("containers", containers)).await;
    assert_eq!(found, 200, "{answer}");
    let whole = || change("resources", amounts("3"));
    let (found, answer) = admin(&server, "PATCH", &resize, whole()).await;
    let expected = "pods \"p\" is forbidden: pod update requires features \
                    InPlacePodLevelResourcesVerticalScaling which are not available on node \"n\"";
    assert_eq!((found, answer["message"].as_str()), (403, Some(expected)));
    let declared =
        json!({"status": {"declaredFeatures": ["InPlacePodLevelResourcesVerticalScaling"]}});
    let path = "/api/v1/nodes/n/status";
    assert_eq!(code(&server, "PATCH", path, declared).await, 200);
    let (found, answer) = admin(&server, "PATCH", &resize, whole()).await;
    assert_eq!(found, 200, "{answer}");
}
