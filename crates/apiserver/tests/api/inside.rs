//! How pods reach the server: their account and its token, and the endpoints of the service `kubernetes`.

use std::sync::Arc;

use allot_apiserver::Server;
use allot_apiserver::config::Config;
use allot_store::{Backend, Embedded, Options};
use serde_json::{Value, json};

use crate::{admin, with_config};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const PODS: &str = "/api/v1/namespaces/default/pods";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "initContainers": [{"name": "i", "image": "i"}],
            "containers": [
                {"name": "c", "image": "i"},
                {"name": "own", "image": "i", "volumeMounts": [{"name": "mine", "mountPath": MOUNT_PATH}]},
            ],
            "volumes": [{"name": "mine", "emptyDir": {}}],
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        pod["spec"][key] = value.clone();
    }
    pod
}

async fn create(server: &Server, name: &str, spec: Value) -> Value {
    let (code, body) = admin(server, "POST", PODS, pod(name, spec)).await;
    assert_eq!(code, 201, "{body}");
    body["spec"].clone()
}

async fn with_account(account: Value) -> Server {
    let server = Server::in_memory().await.unwrap();
    assert_eq!(admin(&server, "POST", ACCOUNTS, account).await.0, 201);
    server
}

#[tokio::test]
async fn containers_get_a_token_where_they_have_nothing() {
    let account = json!({"metadata": {"name": "default"}, "imagePullSecrets": [{"name": "s"}]});
    let server = with_account(account).await;
    let spec = create(&server, "p", json!({})).await;
    assert_eq!(spec["serviceAccountName"], "default");
    assert_eq!(spec["imagePullSecrets"], json!([{"name": "s"}]));
    let volume = &spec["volumes"][1];
    let name = volume["name"].as_str().unwrap();
    assert!(name.starts_with("kube-api-access-"), "{name}");
    let sources = json!([
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
        ]}},
    ]);
    assert_eq!(
        volume["projected"],
        json!({"sources": sources, "defaultMode": 420})
    );
    let mount = json!([{"name": name, "readOnly": true, "mountPath": MOUNT_PATH}]);
    assert_eq!(spec["initContainers"][0]["volumeMounts"], mount);
    assert_eq!(spec["containers"][0]["volumeMounts"], mount);
    assert_eq!(spec["containers"][1]["volumeMounts"][0]["name"], "mine");
}

#[tokio::test]
async fn pod_and_account_may_decline_the_token() {
    let account = json!({"metadata": {"name": "default"}, "automountServiceAccountToken": false});
    let server = with_account(account).await;
    let volumes = async |name, spec| {
        let spec = create(&server, name, spec).await;
        spec["volumes"].as_array().unwrap().len()
    };
    assert_eq!(volumes("account", json!({})).await, 1);
    let spec = json!({"automountServiceAccountToken": true});
    assert_eq!(volumes("pod", spec).await, 2);
}

#[tokio::test]
async fn a_pod_waits_for_the_account_of_a_new_namespace() {
    let server = with_account(json!({"metadata": {"name": "default"}})).await;
    let namespace = json!({"metadata": {"name": "new"}});
    admin(&server, "POST", "/api/v1/namespaces", namespace).await;
    let (pods, accounts) = (
        PODS.replace("default", "new"),
        ACCOUNTS.replace("default", "new"),
    );
    let late = json!({"metadata": {"name": "default"}});
    // The pod is on its way before the account exists.
    let (pod, account) = tokio::join!(
        admin(&server, "POST", &pods, pod("p", json!({}))),
        admin(&server, "POST", &accounts, late),
    );
    assert_eq!((account.0, pod.0), (201, 201), "{}", pod.1);
    assert_eq!(pod.1["spec"]["serviceAccountName"], "default");
}

#[tokio::test]
async fn an_account_that_does_not_exist_is_named() {
    let server = Server::in_memory().await.unwrap();
    let pod = pod("p", json!({"serviceAccountName": "x"}));
    let (code, body) = admin(&server, "POST", PODS, pod).await;
    let why = "pods \"p\" is forbidden: error looking up service account default/x: serviceaccount \"x\" not found";
    assert_eq!((code, body["message"].as_str()), (403, Some(why)));
}

#[tokio::test]
async fn endpoints_follow_the_address_of_the_server() {
    let backend: Arc<dyn Backend> = Arc::new(Embedded::in_memory(Options::default()));
    for port in [6443, 7443] {
        let config = Config {
            advertise: Some(([127, 0, 0, 1], port).into()),
            ..Config::default()
        };
        let server = Server::new(backend.clone(), config);
        server.bootstrap().await.unwrap();
        let get = async |path: &str| admin(&server, "GET", path, Value::Null).await.1;
        let service = get("/api/v1/namespaces/default/services/kubernetes").await;
        assert_eq!(service["spec"]["clusterIP"], "10.96.0.1");
        assert_eq!(service["spec"]["ports"][0]["targetPort"], port);
        let endpoints = get("/api/v1/namespaces/default/endpoints/kubernetes").await;
        let ports = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
        let subset = json!({"addresses": [{"ip": "127.0.0.1"}], "ports": ports});
        assert_eq!(endpoints["subsets"], json!([subset]));
        let slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
        let slice = get(slice).await;
        assert_eq!(
            slice["metadata"]["labels"]["kubernetes.io/service-name"],
            "kubernetes"
        );
        assert_eq!(
            (&slice["addressType"], &slice["ports"]),
            (&json!("IPv4"), &ports)
        );
        let shown = get("/apis/networking.k8s.io/v1/ipaddresses/10.96.0.1").await;
        assert_eq!(shown["spec"]["parentRef"]["name"], "kubernetes");
    }
}

/// A service whose only endpoint answers with the request's first line.
#[tokio::test]
async fn services_and_pods_are_reached_through_the_server() {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            stream.read_line(&mut line).await.unwrap();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", line.len());
            stream
                .write_all(format!("{head}{line}").as_bytes())
                .await
                .unwrap();
        }
    });
    let config = Config {
        advertise: Some(([127, 0, 0, 1], port).into()),
        ..Config::default()
    };
    let server = with_config(config).await;
    let get = async |path: &str| {
        let path = format!("/api/v1/namespaces/default/{path}");
        let (code, body) = admin(&server, "GET", &path, Value::Null).await;
        let text = body["message"].as_str().or(body.as_str());
        (code, text.unwrap_or_default().to_owned())
    };
    for name in ["kubernetes", "kubernetes:https", "http:kubernetes:443"] {
        let (code, line) = get(&format!("services/{name}/proxy/a/b?c=d")).await;
        assert_eq!(
            (code, line.as_str()),
            (200, "GET /a/b?c=d HTTP/1.1\r\n"),
            "{name}"
        );
    }
    let (code, why) = get("services/kubernetes:x/proxy/").await;
    let text = "no service port \"x\" found for service \"kubernetes\"";
    assert_eq!((code, why.as_str()), (503, text));
    assert_eq!(
        get("services/none/proxy/").await.1,
        "services \"none\" not found"
    );
    let ports = json!([{"name": "c", "image": "i", "ports": [{"containerPort": port}]}]);
    for (name, spec) in [("p", json!({"containers": ports})), ("other", json!({}))] {
        let (code, body) = admin(&server, "POST", PODS, pod(name, spec)).await;
        assert_eq!(code, 201, "{body}");
    }
    let refused = (400, "address not allowed".to_owned());
    assert_eq!(get("pods/p/proxy/").await, refused);
    let status = json!({"status": {"podIP": "127.0.0.1"}});
    for name in ["p", "other"] {
        admin(
            &server,
            "PATCH",
            &format!("{PODS}/{name}/status"),
            status.clone(),
        )
        .await;
    }
    let (code, line) = get(&format!("pods/p:{port}/proxy/x")).await;
    assert_eq!((code, line.as_str()), (200, "GET /x HTTP/1.1\r\n"));
    // What else listens on the loopback interface of the host is no part of a pod.
    assert_eq!(get(&format!("pods/other:{port}/proxy/x")).await, refused);
    let status = json!({"status": {"podIP": "169.254.169.254"}});
    admin(&server, "PATCH", &format!("{PODS}/p/status"), status).await;
    assert_eq!(get(&format!("pods/p:{port}/proxy/x")).await, refused);
}
