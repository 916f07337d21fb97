//! What containers are given from the API server: files that follow it, and variables that name services.

use http::Method;
use serde_json::json;

use super::harness::{Cluster, has_isolation, pod_path, shell, status, with};

#[tokio::test(flavor = "multi_thread")]
async fn files_follow_their_config_map() {
    let cluster = Cluster::start().await;
    if !has_isolation(&cluster).await {
        return;
    }
    let maps = "/api/v1/namespaces/default/configmaps";
    let map = json!({"metadata": {"name": "m"}, "data": {"word": "old", "other": "there"}});
    cluster.post(maps, map).await;
    // All content changes at once, and then the names that come and go.
    let script = "cd /etc/m; until grep -q new word && [ -e more ] && ! [ -L other ]; do sleep 0.05; done; ls; cat word";
    let mount = json!({"volumeMounts": [{"name": "v", "mountPath": "/etc/m"}]});
    let spec = json!({
        "restartPolicy": "Never",
        "containers": [with(shell(script), "c", mount)],
        "volumes": [{"name": "v", "configMap": {"name": "m"}}],
    });
    cluster.pod("p", spec).await;
    cluster.wait_for_phase("p", "Running").await;
    let change = json!({"data": {"word": "new\n", "other": null, "more": ""}});
    let path = format!("{maps}/m");
    let changed = cluster.call(Method::PATCH, &path, Some(change)).await;
    changed.expect("changed");
    cluster.wait_for_phase("p", "Succeeded").await;
    assert_eq!(cluster.log("p", "c", 0), "more\nword\nnew\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn services_and_the_api_server_are_named_in_the_environment() {
    let cluster = Cluster::start().await;
    let service = |name: &str, ports: serde_json::Value| json!({"metadata": {"name": name}, "spec": {"ports": ports, "clusterIP": "10.96.0.77"}});
    let services = "/api/v1/namespaces/default/services";
    cluster
        .post(services, service("db-main", json!([{"port": 5432}])))
        .await;
    // Made at the start of a server that serves a network.
    let mut own = service("kubernetes", json!([{"name": "https", "port": 443}]));
    own["spec"]["clusterIP"] = json!("10.96.0.1");
    cluster.post(services, own).await;
    let script =
        "echo $DB_MAIN_SERVICE_HOST:$DB_MAIN_SERVICE_PORT $MINE $KUBERNETES_SERVICE_PORT_HTTPS";
    let mut container = with(shell(script), "c", json!({}));
    container["env"] = json!([{"name": "MINE", "value": "at-$(DB_MAIN_SERVICE_HOST)"}]);
    let spec = json!({"restartPolicy": "Never", "containers": [container]});
    cluster.pod("linked", spec.clone()).await;
    cluster.wait_for_phase("linked", "Succeeded").await;
    let log = cluster.log("linked", "c", 0);
    assert_eq!(log, "10.96.0.77:5432 at-10.96.0.77 443\n");

    let mut unlinked = spec;
    unlinked["enableServiceLinks"] = json!(false);
    cluster.pod("unlinked", unlinked).await;
    cluster.wait_for_phase("unlinked", "Succeeded").await;
    let log = cluster.log("unlinked", "c", 0);
    assert_eq!(log, ": at-$(DB_MAIN_SERVICE_HOST) 443\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn config_maps_are_read_only_and_their_binary_part_is_for_volumes() {
    let cluster = Cluster::start().await;
    if !has_isolation(&cluster).await {
        return;
    }
    let maps = "/api/v1/namespaces/default/configmaps";
    let map =
        json!({"metadata": {"name": "m"}, "data": {"k": "text"}, "binaryData": {"b": "AAEC"}});
    cluster.post(maps, map).await;
    let script = "echo $k; wc -c < /mnt/m/b; touch /mnt/m/x || echo refused";
    let container = with(
        shell(script),
        "c",
        json!({
            "envFrom": [{"configMapRef": {"name": "m"}}],
            "volumeMounts": [{"name": "v", "mountPath": "/mnt/m"}],
        }),
    );
    let spec = json!({"restartPolicy": "Never", "containers": [container], "volumes": [{"name": "v", "configMap": {"name": "m"}}]});
    cluster.pod("p", spec).await;
    cluster.wait_for_phase("p", "Succeeded").await;
    let log = cluster.log("p", "c", 0);
    assert!(
        log.starts_with("text\n3\n") && log.contains("refused\n"),
        "{log}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sub_path_does_not_lead_out_of_its_volume() {
    let cluster = Cluster::start().await;
    if !has_isolation(&cluster).await {
        return;
    }
    let mount =
        |sub: &str| json!({"volumeMounts": [{"name": "v", "mountPath": "/mnt/v", "subPath": sub}]});
    let make = with(
        shell("ln -s /etc /mnt/v/out; ln -s . /mnt/v/in"),
        "make",
        mount(""),
    );
    let out = with(shell("sleep 1000"), "out", mount("out"));
    let inside = with(shell("sleep 1000"), "inside", mount("in/a"));
    let spec = json!({"initContainers": [make], "containers": [out, inside], "volumes": [{"name": "v", "emptyDir": {}}]});
    cluster.pod("p", spec).await;
    let pod = cluster
        .wait_until(&pod_path("p"), "started", |pod| {
            status(pod, "inside")["state"]["running"].is_object()
                && status(pod, "out")["state"]["waiting"]["message"].is_string()
        })
        .await;
    assert_eq!(
        status(&pod, "out")["state"]["waiting"]["message"],
        "failed to prepare subPath for volumeMount \"v\" of container \"out\""
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_bounded_and_leaves_nothing_mounted() {
    let cluster = Cluster::start().await;
    if !has_isolation(&cluster).await || !rustix::process::geteuid().is_root() {
        return;
    }
    let mount = json!({"volumeMounts": [{"name": "v", "mountPath": "/mnt/v"}]});
    // The first container fills it, the second sees the same memory.
    let fill = "head -c 4m /dev/zero > /mnt/v/big 2> /dev/null || echo full; grep -c ' /mnt/v tmpfs ' /proc/mounts";
    let spec = json!({
        "restartPolicy": "Never",
        "initContainers": [with(shell(fill), "i", mount.clone())],
        "containers": [with(shell("test $(stat -c %s /mnt/v/big) -le 1048576 && echo bounded; exec sleep 1000"), "c", mount)],
        "volumes": [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}],
    });
    let uid = cluster.pod("p", spec).await;
    cluster.wait_for_logs("p", &["c"]).await;
    assert_eq!(cluster.log("p", "i", 0), "full\n1\n");
    assert_eq!(cluster.log("p", "c", 0), "bounded\n");
    let mounted = || {
        std::fs::read_to_string("/proc/self/mountinfo")
            .unwrap()
            .contains(&uid)
    };
    assert!(mounted());
    cluster.delete(&pod_path("p")).await;
    cluster.wait_until_gone("p").await;
    allot_testing::wait::until_true("it is unmounted", || !mounted()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_with_too_much_in_a_volume_is_evicted() {
    let cluster = Cluster::start().await;
    if !has_isolation(&cluster).await {
        return;
    }
    let mount = json!({"volumeMounts": [{"name": "v", "mountPath": "/mnt/v"}]});
    let script = "head -c 3m /dev/zero > /mnt/v/big; exec sleep 1000";
    let spec = json!({
        "containers": [with(shell(script), "c", mount)],
        "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "2Mi"}}],
    });
    cluster.pod("p", spec).await;
    let pod = cluster.wait_for_phase("p", "Failed").await;
    let message = "Usage of EmptyDir volume \"v\" exceeds the limit \"2Mi\". ";
    assert_eq!(pod["status"]["reason"], "Evicted");
    assert_eq!(pod["status"]["message"], message);
    // The fault is the pod's own.
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    assert!(!conditions.iter().any(|it| it["type"] == "DisruptionTarget"));
    assert_eq!(cluster.wait_for_event("p", "Evicted").await, message);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_with_more_than_its_limit_of_storage_is_evicted() {
    let cluster = Cluster::start().await;
    if !has_isolation(&cluster).await {
        return;
    }
    let mount = json!({
        "volumeMounts": [{"name": "v", "mountPath": "/mnt/v"}],
        "resources": {"limits": {"ephemeral-storage": "2Mi"}},
    });
    let script = "head -c 3m /dev/zero > /mnt/v/big; exec sleep 1000";
    let spec = json!({
        "containers": [with(shell(script), "c", mount)],
        "volumes": [{"name": "v", "emptyDir": {}}],
    });
    cluster.pod("p", spec).await;
    let pod = cluster.wait_for_phase("p", "Failed").await;
    assert_eq!(pod["status"]["reason"], "Evicted");
    let message = "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. ";
    assert_eq!(pod["status"]["message"], message);
    assert_eq!(cluster.wait_for_event("p", "Evicted").await, message);
}

/// The attack: what a container writes to its termination message, or to `/etc/hosts`, is on the disk of the node (CVE-2020-8557 of the
/// kubelet). It counted for nothing.
#[tokio::test(flavor = "multi_thread")]
async fn regression_files_of_the_node_in_containers_count_for_the_limit_of_storage() {
    let cluster = Cluster::start().await;
    if !has_isolation(&cluster).await {
        return;
    }
    let limit = json!({"resources": {"limits": {"ephemeral-storage": "2Mi"}}});
    let script = "head -c 3m /dev/zero > /dev/termination-log; exec sleep 1000";
    let mut container = with(shell(script), "c", limit);
    container["terminationMessagePath"] = json!("/dev/termination-log");
    cluster.pod("p", json!({"containers": [container]})).await;
    let pod = cluster.wait_for_phase("p", "Failed").await;
    let message = "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. ";
    assert_eq!(pod["status"]["message"], message);
}
