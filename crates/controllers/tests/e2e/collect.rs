//! Garbage collection and namespaces.

use serde_json::{Value, json};

use super::harness::Cluster;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn map(cluster: &Cluster, name: &str, owners: &[(&Value, bool)]) -> Value {
    let owners: Vec<Value> = owners
        .iter()
        .map(|(o, block)| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "name": o["metadata"]["name"],
                "uid": o["metadata"]["uid"], "blockOwnerDeletion": block,
            })
        })
        .collect();
    cluster
        .create(
            MAPS,
            json!({"metadata": {"name": name, "ownerReferences": owners}}),
        )
        .await
}

#[tokio::test]
async fn dependents_go_with_their_last_owner() {
    let cluster = Cluster::start().await;
    let a = map(&cluster, "a", &[]).await;
    let b = map(&cluster, "b", &[]).await;
    map(&cluster, "one", &[(&a, false)]).await;
    map(&cluster, "two", &[(&a, false), (&b, false)]).await;
    cluster.delete(&format!("{MAPS}/a")).await;
    cluster.until_gone(&format!("{MAPS}/one")).await;
    let two = cluster
        .until(&format!("{MAPS}/two"), "owned by b alone", |m| {
            m["metadata"]["ownerReferences"]
                .as_array()
                .is_some_and(|o| o.len() == 1)
        })
        .await;
    assert_eq!(two["metadata"]["ownerReferences"][0]["name"], "b");
    cluster.delete(&format!("{MAPS}/b")).await;
    cluster.until_gone(&format!("{MAPS}/two")).await;
}

#[tokio::test]
async fn an_owner_that_never_existed_does_not_keep_a_dependent() {
    let cluster = Cluster::start().await;
    let ghost =
        json!({"metadata": {"name": "ghost", "uid": "00000000-0000-0000-0000-000000000000"}});
    map(&cluster, "orphan", &[(&ghost, false)]).await;
    cluster.until_gone(&format!("{MAPS}/orphan")).await;
}

#[tokio::test]
async fn foreground_deletion_waits_for_blocking_dependents() {
    let cluster = Cluster::start().await;
    let a = map(&cluster, "a", &[]).await;
    map(&cluster, "child", &[(&a, true)]).await;
    cluster
        .patch(
            &format!("{MAPS}/child"),
            json!({"metadata": {"finalizers": ["example.com/wait"]}}),
        )
        .await;
    cluster
        .delete_with(
            &format!("{MAPS}/a"),
            json!({"propagationPolicy": "Foreground"}),
        )
        .await;
    cluster
        .until(&format!("{MAPS}/child"), "being deleted", |m| {
            m["metadata"]["deletionTimestamp"].is_string()
        })
        .await;
    let a = cluster.get(&format!("{MAPS}/a")).await.expect("waits");
    assert_eq!(a["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    cluster
        .patch(
            &format!("{MAPS}/child"),
            json!({"metadata": {"finalizers": null}}),
        )
        .await;
    cluster.until_gone(&format!("{MAPS}/child")).await;
    cluster.until_gone(&format!("{MAPS}/a")).await;
}

#[tokio::test]
async fn orphaning_leaves_dependents_without_owner() {
    let cluster = Cluster::start().await;
    let a = map(&cluster, "a", &[]).await;
    map(&cluster, "child", &[(&a, true)]).await;
    cluster
        .delete_with(&format!("{MAPS}/a"), json!({"propagationPolicy": "Orphan"}))
        .await;
    cluster.until_gone(&format!("{MAPS}/a")).await;
    let child = cluster.get(&format!("{MAPS}/child")).await.expect("stays");
    assert!(child["metadata"]["ownerReferences"].is_null(), "{child}");
}

#[tokio::test]
async fn a_deleted_namespace_is_emptied_first() {
    let cluster = Cluster::start().await;
    cluster.namespace("x").await;
    cluster
        .until(
            "/api/v1/namespaces/x/serviceaccounts/default",
            "there",
            |a| !a.is_null(),
        )
        .await;
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/wait"]}});
    cluster
        .create("/api/v1/namespaces/x/configmaps", held)
        .await;
    cluster
        .create(
            "/api/v1/namespaces/x/configmaps",
            json!({"metadata": {"name": "free"}}),
        )
        .await;
    cluster.delete("/api/v1/namespaces/x").await;
    cluster
        .until_gone("/api/v1/namespaces/x/configmaps/free")
        .await;
    let namespace = cluster
        .until("/api/v1/namespaces/x", "waiting for finalizers", |n| {
            n["status"]["conditions"].as_array().is_some_and(|c| {
                c.iter()
                    .any(|c| c["type"] == "NamespaceFinalizersRemaining" && c["status"] == "True")
            })
        })
        .await;
    assert_eq!(namespace["status"]["phase"], "Terminating");
    cluster
        .patch(
            "/api/v1/namespaces/x/configmaps/held",
            json!({"metadata": {"finalizers": null}}),
        )
        .await;
    cluster.until_gone("/api/v1/namespaces/x").await;
}

#[tokio::test]
async fn storage_is_deleted_when_it_is_unused() {
    let cluster = Cluster::start().await;
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let claim = |name: &str| {
        json!({
            "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        })
    };
    let pods = "/api/v1/namespaces/default/pods";
    let user = json!({
        "metadata": {"name": "user"},
        "spec": {
            "nodeName": "n",
            "containers": [{"name": "c", "image": "registry.invalid/c:1"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "used"}}],
        },
    });
    cluster.create(claims, claim("used")).await;
    cluster.create(claims, claim("free")).await;
    cluster.create(pods, user).await;
    for name in ["used", "free"] {
        cluster.delete(&format!("{claims}/{name}")).await;
    }
    let gone = |object: &Value| object["metadata"].is_null();
    cluster.until(&format!("{claims}/free"), "gone", gone).await;
    let used = cluster.get(&format!("{claims}/used")).await;
    assert!(used.is_some(), "its pod is still there");
    let now = json!({"gracePeriodSeconds": 0});
    cluster.delete_with(&format!("{pods}/user"), now).await;
    cluster.until(&format!("{claims}/used"), "gone", gone).await;

    let volumes = "/api/v1/persistentvolumes";
    let volume = json!({
        "metadata": {"name": "v"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/tmp/v"},
        },
    });
    cluster.create(volumes, volume).await;
    let path = format!("{volumes}/v");
    let bound = json!({"status": {"phase": "Bound"}});
    let status = format!("{path}/status");
    cluster.patch(&status, bound).await;
    cluster.delete(&path).await;
    let kept = cluster.get(&path).await.expect("it is bound");
    assert_eq!(
        kept["metadata"]["finalizers"],
        json!(["kubernetes.io/pv-protection"])
    );
    cluster
        .patch(&status, json!({"status": {"phase": "Released"}}))
        .await;
    cluster.until(&path, "gone", gone).await;

    let classes = "/apis/storage.k8s.io/v1/volumeattributesclasses";
    let class = json!({
        "metadata": {"name": "gold"}, "driverName": "disk.example.com", "parameters": {"iops": "9"},
    });
    cluster.create(classes, class).await;
    let mut golden = claim("golden");
    golden["spec"]["volumeAttributesClassName"] = json!("gold");
    cluster.create(claims, golden).await;
    let gold = format!("{classes}/gold");
    cluster.delete(&gold).await;
    let used = cluster.get(&gold).await;
    assert!(used.is_some(), "its claim is still there");
    cluster.delete(&format!("{claims}/golden")).await;
    cluster.until(&gold, "gone", gone).await;
}

#[tokio::test]
async fn a_range_of_services_is_kept_while_its_addresses_are_in_use() {
    let cluster = Cluster::start().await;
    let cidrs = "/apis/networking.k8s.io/v1/servicecidrs";
    let path = format!("{cidrs}/more");
    cluster
        .create(
            cidrs,
            json!({"metadata": {"name": "more"}, "spec": {"cidrs": ["10.200.0.0/28"]}}),
        )
        .await;
    let made = cluster
        .until(&path, "ready", |cidr| {
            cidr["status"]["conditions"][0]["status"] == "True"
        })
        .await;
    let finalizers = json!(["networking.k8s.io/service-cidr-finalizer"]);
    assert_eq!(made["metadata"]["finalizers"], finalizers);
    let service = json!({
        "metadata": {"name": "s"}, "spec": {"clusterIP": "10.200.0.5", "ports": [{"port": 80}]},
    });
    cluster
        .create("/api/v1/namespaces/default/services", service)
        .await;
    cluster.delete(&path).await;
    let kept = cluster
        .until(&path, "kept", |cidr| {
            cidr["status"]["conditions"][0]["reason"] == "Terminating"
        })
        .await;
    assert_eq!(kept["metadata"]["finalizers"], finalizers);
}
