//! The objects that every cluster has from the start, as kube-apiserver 1.36.2 makes them.

use std::sync::Arc;

use allot_apiserver::Server;
use allot_apiserver::config::Config;
use serde_json::{Value, json};

use crate::{admin, with_config};

/// A server that others can reach.
async fn server() -> Server {
    let config = Config {
        advertise: Some(([10, 1, 2, 3], 16443).into()),
        ..Config::default()
    };
    with_config(config).await
}

/// The object of a path, whose managed fields have no times.
async fn object(server: &Server, path: &str) -> Value {
    let (code, mut object) = admin(server, "GET", path, Value::Null).await;
    assert_eq!(code, 200, "{path}: {object}");
    let entries = object["metadata"]["managedFields"].as_array_mut();
    for entry in entries.into_iter().flatten() {
        let time = entry.as_object_mut().unwrap().remove("time");
        assert!(time.is_some_and(|time| time.is_string()), "{path}");
    }
    object
}

/// Whether everything in `part` is in `whole`.
fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part
            .iter()
            .all(|(key, part)| whole.get(key).is_some_and(|whole| contains(whole, part))),
        _ => whole == part,
    }
}

#[tokio::test]
async fn the_first_objects_are_those_of_kube_apiserver() {
    let server = server().await;
    let wanted: Value = serde_json::from_str(include_str!("bootstrap.json")).unwrap();
    let mut wrong = Vec::new();
    for (path, wanted) in wanted.as_object().unwrap() {
        let found = object(&server, path).await;
        if !contains(&found, wanted) {
            wrong.push(format!("{path}\n  wanted {wanted}\n  found  {found}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A user's change of such an object is told apart from what the server has written.
#[tokio::test]
async fn changes_of_the_first_objects_have_owners() {
    let server = server().await;
    let path = "/api/v1/namespaces/default";
    let patch = json!({"metadata": {"labels": {"mine": "1"}}});
    let (code, changed) = admin(&server, "PATCH", path, patch).await;
    assert_eq!(code, 200, "{changed}");
    let owners = changed["metadata"]["managedFields"].as_array().unwrap();
    let fields: Vec<&Value> = owners
        .iter()
        .map(|owner| &owner["fieldsV1"]["f:metadata"]["f:labels"])
        .collect();
    assert_eq!(owners.len(), 2, "{changed}");
    let of = |label: &str| {
        let key = format!("f:{label}");
        fields.iter().filter(|it| !it[&key].is_null()).count()
    };
    assert_eq!((of("mine"), of("kubernetes.io/metadata.name")), (1, 1));
}

/// Tools find the API servers of a cluster by this Lease.
#[tokio::test]
async fn the_server_has_a_lease() {
    let server = server().await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let selected =
        format!("{leases}?labelSelector=apiserver.kubernetes.io/identity%3Dkube-apiserver");
    let (_, list) = admin(&server, "GET", &selected, Value::Null).await;
    let [lease] = list["items"].as_array().unwrap().as_slice() else {
        panic!("{list}");
    };
    let name = lease["metadata"]["name"].as_str().unwrap();
    assert_eq!(
        name.strip_prefix("apiserver-").map(str::len),
        Some(26),
        "{name}"
    );
    assert!(lease["metadata"]["labels"]["kubernetes.io/hostname"].is_string());
    let annotations = &lease["metadata"]["annotations"];
    assert_eq!(
        annotations["kubernetes.io/peer-advertise-address"],
        "10.1.2.3:16443"
    );
    let spec = &lease["spec"];
    assert_eq!(spec["leaseDurationSeconds"], 3600);
    assert!(
        spec["holderIdentity"]
            .as_str()
            .unwrap()
            .starts_with(&format!("{name}_"))
    );
    assert!(spec["renewTime"].is_string() && spec["acquireTime"].is_null());
}

/// A server of a later release adds what its roles have; what an administrator has added, or protected, stays.
#[tokio::test]
async fn default_roles_are_completed_when_the_server_starts() {
    const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    let backend = Arc::new(allot_store::Embedded::in_memory(
        allot_store::Options::default(),
    ));
    let first = Server::new(backend.clone(), Config::default());
    first.bootstrap().await.unwrap();
    let rule = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    for (name, autoupdate) in [("system:monitoring", "true"), ("system:heapster", "false")] {
        let annotations = json!({"rbac.authorization.kubernetes.io/autoupdate": autoupdate});
        let patch = json!({"metadata": {"annotations": annotations}, "rules": rule});
        let (code, answer) = admin(&first, "PATCH", &format!("{ROLES}/{name}"), patch).await;
        assert_eq!(code, 200, "{answer}");
    }
    let second = Server::new(backend, Config::default());
    second.bootstrap().await.unwrap();
    let wanted: Value = serde_json::from_str(include_str!("bootstrap.json")).unwrap();
    let default = wanted[format!("{ROLES}/system:monitoring")]["rules"].as_array();
    let mut completed = rule.as_array().unwrap().clone();
    completed.extend(default.unwrap().iter().cloned());
    for (name, rules) in [
        ("system:monitoring", Value::from(completed)),
        ("system:heapster", rule),
    ] {
        let (_, role) = admin(&second, "GET", &format!("{ROLES}/{name}"), Value::Null).await;
        assert_eq!(role["rules"], rules, "{name}");
    }
    // What is as it should be is not written again.
    let path = format!("{ROLES}/cluster-admin");
    let (_, before) = admin(&first, "GET", &path, Value::Null).await;
    let (_, after) = admin(&second, "GET", &path, Value::Null).await;
    assert_eq!(before, after);
}

/// What an administrator has made of discovery goes for the public pages too, on a cluster from before they had a role.
#[tokio::test]
async fn the_binding_of_public_pages_begins_as_that_of_discovery() {
    const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let backend = Arc::new(allot_store::Embedded::in_memory(
        allot_store::Options::default(),
    ));
    let first = Server::new(backend.clone(), Config::default());
    first.bootstrap().await.unwrap();
    let subject =
        json!({"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "people"});
    let path = |name: &str| format!("{BINDINGS}/{name}");
    let (discovery, public) = (path("system:discovery"), path("system:public-info-viewer"));
    let annotations = json!({"rbac.authorization.kubernetes.io/autoupdate": "false", "mine": "1"});
    let patch = json!({"metadata": {"annotations": annotations}, "subjects": [subject]});
    let (code, answer) = admin(&first, "PATCH", &discovery, patch).await;
    assert_eq!(code, 200, "{answer}");
    let (code, answer) = admin(&first, "DELETE", &public, Value::Null).await;
    assert_eq!(code, 200, "{answer}");
    let second = Server::new(backend, Config::default());
    second.bootstrap().await.unwrap();
    let (_, binding) = admin(&second, "GET", &public, Value::Null).await;
    assert_eq!(binding["roleRef"]["name"], "system:public-info-viewer");
    assert_eq!(binding["subjects"], json!([subject]));
    assert_eq!(binding["metadata"]["annotations"], annotations);
}

/// An administrator who runs out of addresses adds a range.
#[tokio::test]
async fn services_get_addresses_of_every_range() {
    let config = Config {
        service_addresses: "10.96.0.0/29".parse().unwrap(),
        ..Config::default()
    };
    let server = with_config(config).await;
    let make = async |name: &str| {
        let service = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
        admin(
            &server,
            "POST",
            "/api/v1/namespaces/default/services",
            service,
        )
        .await
    };
    for name in ["a", "b", "d", "e", "f", "g"] {
        let (code, service) = make(name).await;
        assert_eq!(code, 201, "{service}");
        let address = service["spec"]["clusterIP"].as_str().unwrap();
        assert!(address.starts_with("10.96.0."), "{address}");
    }
    let (code, full) = make("c").await;
    assert_eq!(code, 500, "{full}");
    assert_eq!(
        full["message"],
        "Internal error occurred: failed to allocate a serviceIP for Service \"c\": range is full"
    );
    let more = json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["10.200.0.0/30"]}});
    let (code, answer) = admin(
        &server,
        "POST",
        "/apis/networking.k8s.io/v1/servicecidrs",
        more,
    )
    .await;
    assert_eq!(code, 201, "{answer}");
    let (code, service) = make("c").await;
    assert_eq!(code, 201, "{service}");
    let address = service["spec"]["clusterIP"].as_str().unwrap();
    assert!(address.starts_with("10.200.0."), "{address}");
}
