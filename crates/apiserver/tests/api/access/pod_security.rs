//! Pod security as the administrator configures it: defaults of namespaces without labels, and exemptions.

use allot_apiserver::Server;
use allot_apiserver::config::pod_security::{Level, PodSecurity};
use allot_apiserver::config::{AdmissionOptions, Config};
use allot_apiserver::identity::{MASTERS, User};
use bytes::Bytes;
use http_body_util::Full;
use serde_json::{Value, json};

use crate::with_config;

async fn server() -> Server {
    let names = |name: &str| vec![name.to_owned()];
    let mut pod_security = PodSecurity {
        users: names("builder"),
        namespaces: names("system"),
        runtime_classes: names("sandboxed"),
        ..PodSecurity::default()
    };
    pod_security.defaults.enforce.level = Level::Baseline;
    let config = Config {
        disabled_admission: vec!["ServiceAccount".to_owned(), "RuntimeClass".to_owned()],
        admission: AdmissionOptions {
            pod_security,
            ..AdmissionOptions::default()
        },
        ..Config::default()
    };
    with_config(config).await
}

/// The code of an answer, and its warning.
async fn create(server: &Server, user: &str, path: &str, object: Value) -> (u16, String) {
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(object.to_string())))
        .unwrap();
    let response = server
        .handle(request, Some(User::new(user, [MASTERS])))
        .await;
    let warning = response.headers().get("warning");
    let warning = warning.map_or("", |warning| warning.to_str().unwrap());
    (response.status().as_u16(), warning.to_owned())
}

#[tokio::test]
async fn defaults_hold_without_labels_and_exemptions_end_them() {
    let server = server().await;
    let namespaces = "/api/v1/namespaces";
    let privileged = json!({"pod-security.kubernetes.io/enforce": "privileged"});
    let restricted = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    for (name, labels, warned) in [
        ("plain", Value::Null, ""),
        ("open", privileged, ""),
        (
            "system",
            restricted,
            "299 - \"namespace \\\"system\\\" is exempt from Pod Security, and the policy \
             (enforce=restricted:latest) will be ignored\"",
        ),
    ] {
        let namespace = json!({"metadata": {"name": name, "labels": labels}});
        let (code, warning) = create(&server, "admin", namespaces, namespace).await;
        assert_eq!((code, warning.as_str()), (201, warned), "{name}");
    }
    let cases = [
        ("plain", "admin", "", 403),
        // Only the class that is exempt is, and only the user.
        ("plain", "admin", "other", 403),
        ("plain", "builder2", "", 403),
        ("plain", "admin", "sandboxed", 201),
        ("plain", "builder", "", 201),
        ("open", "admin", "", 201),
        ("system", "admin", "", 201),
    ];
    for (number, (namespace, user, class, expected)) in cases.into_iter().enumerate() {
        let mut pod = json!({
            "metadata": {"name": format!("p{number}")},
            "spec": {"hostNetwork": true, "containers": [{"name": "c", "image": "i"}]},
        });
        if !class.is_empty() {
            pod["spec"]["runtimeClassName"] = class.into();
        }
        let path = format!("{namespaces}/{namespace}/pods");
        let (code, _) = create(&server, user, &path, pod).await;
        assert_eq!(code, expected, "{namespace} {user} {class}");
    }
}
