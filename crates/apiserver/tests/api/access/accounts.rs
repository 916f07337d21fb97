//! Which secrets the pods of a service account may have, and what a mirror pod may not refer to.

use allot_apiserver::Server;
use serde_json::{Value, json};

use crate::admin;

const PODS: &str = "/api/v1/namespaces/default/pods";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

fn pod(name: &str, spec: &Value) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": {
        "containers": [{"name": "c", "image": "i"}], "serviceAccountName": "limited",
    }});
    let more = spec.as_object().unwrap().clone();
    pod["spec"].as_object_mut().unwrap().extend(more);
    pod
}

async fn check(server: &Server, request: (&str, &str), object: Value, expected: (u16, &str)) {
    let (method, path) = request;
    let (code, answer) = admin(server, method, path, object.clone()).await;
    let message = answer["message"].as_str().unwrap_or_default();
    assert_eq!((code, message), expected, "{object}");
}

/// The account says that its pods may have its own secrets only. The annotation had a warning and no effect.
#[tokio::test]
async fn regression_an_account_limits_the_secrets_of_its_pods() {
    let server = Server::in_memory().await.unwrap();
    let annotation = |value: &str| json!({"kubernetes.io/enforce-mountable-secrets": value});
    let account = json!({
        "metadata": {"name": "limited", "annotations": annotation("true")},
        "secrets": [{"name": "own"}], "imagePullSecrets": [{"name": "pull"}],
        "automountServiceAccountToken": false,
    });
    check(&server, ("POST", ACCOUNTS), account, (201, "")).await;
    let from = |secret: &str| json!([{"secretRef": {"name": secret}}]);
    let key = |secret: &str| json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": secret, "key": "k"}}}]);
    let volume = |secret: &str| json!([{"name": "v", "secret": {"secretName": secret}}]);
    let with = |key: &str, value: &Value| json!([{"name": "c", "image": "i", key: value}]);
    let refused = |why: &str| {
        format!(
            "pods \"p\" is forbidden: {why} is not allowed because service account limited does not reference that secret"
        )
    };
    let own = json!({
        "containers": [{"name": "c", "image": "i", "env": key("own"), "envFrom": from("own")}],
        "volumes": volume("own"), "imagePullSecrets": [{"name": "pull"}],
    });
    check(&server, ("POST", PODS), pod("fine", &own), (201, "")).await;
    let pulls = "pods \"p\" is forbidden: imagePullSecrets[1].name=\"foreign\" is not allowed because service account \
                 limited does not reference that imagePullSecret";
    let init = |container: Value| json!({"initContainers": container});
    let rows = [
        (
            json!({"volumes": volume("foreign")}),
            refused("volume with secret.secretName=\"foreign\""),
        ),
        (
            json!({"containers": with("env", &key("foreign"))}),
            refused("container c with envVar A referencing secret.secretName=\"foreign\""),
        ),
        (
            json!({"containers": with("envFrom", &from("foreign"))}),
            refused("container c with envFrom referencing secret.secretName=\"foreign\""),
        ),
        (
            init(json!([{"name": "i", "image": "i", "env": key("foreign")}])),
            refused("init container i with envVar A referencing secret.secretName=\"foreign\""),
        ),
        (
            init(json!([{"name": "i", "image": "i", "envFrom": from("foreign")}])),
            refused("init container i with envFrom referencing secret.secretName=\"foreign\""),
        ),
        (
            json!({"imagePullSecrets": [{"name": "pull"}, {"name": "foreign"}]}),
            pulls.to_owned(),
        ),
    ];
    for (spec, why) in &rows {
        check(&server, ("POST", PODS), pod("p", spec), (403, why)).await;
    }
    // Nor by way of a container that comes later, or of a pod that a PUT or an apply creates.
    let helper = |secret: &str| {
        let container = json!({"name": "e", "image": "i", "envFrom": from(secret)});
        json!({"spec": {"ephemeralContainers": [container]}})
    };
    let path = format!("{PODS}/fine/ephemeralcontainers");
    let why = "ephemeral container e with envFrom referencing secret.secretName=\"foreign\" is not allowed because \
               service account limited does not reference that secret";
    check(&server, ("PATCH", &path), helper("foreign"), (500, why)).await;
    check(&server, ("PATCH", &path), helper("own"), (200, "")).await;
    // Without the annotation, or with another value, all secrets of the namespace may be used.
    let path = format!("{ACCOUNTS}/limited");
    for value in ["false", "yes"] {
        let patch = json!({"metadata": {"annotations": annotation(value)}});
        check(&server, ("PATCH", &path), patch, (200, "")).await;
        let pod = pod(&format!("p-{value}"), &rows[0].0);
        check(&server, ("POST", PODS), pod, (201, "")).await;
    }
}

/// Volumes of many types name secrets, and the node of a pod may read those that it names.
#[tokio::test]
async fn regression_a_mirror_pod_names_no_secret_in_any_volume() {
    let server = Server::in_memory().await.unwrap();
    let secret = json!({"name": "s"});
    for source in [
        json!({"csi": {"driver": "d", "nodePublishSecretRef": secret}}),
        json!({"flexVolume": {"driver": "example.com/d", "secretRef": secret}}),
        json!({"azureFile": {"secretName": "s", "shareName": "x"}}),
        json!({"cephfs": {"monitors": ["m"], "secretRef": secret}}),
        json!({"rbd": {"monitors": ["m"], "image": "i", "secretRef": secret}}),
        json!({"projected": {"sources": [{"secret": {"name": "s"}}]}}),
    ] {
        let mut volume = source;
        volume["name"] = "v".into();
        let mut pod = pod("p", &json!({"volumes": [volume], "nodeName": "n"}));
        pod["spec"]
            .as_object_mut()
            .unwrap()
            .remove("serviceAccountName");
        pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        let why = "pods \"p\" is forbidden: a mirror pod may not reference secrets";
        check(&server, ("POST", PODS), pod, (403, why)).await;
    }
}
