//! What containers are given from the API server: files that follow it, and variables that name services.

use http::Method;
use serde_json::json;

use super::harness::{Cluster, isolated, pod_path, shell, status, with};

#[tokio::test(flavor = "multi_thread")]
async fn files_follow_their_config_map() {
    let cluster = Cluster::start().await;
    if !isolated(&cluster).await {
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
    cluster.until_phase("p", "Running").await;
    let change = json!({"data": {"word": "new\n", "other": null, "more": ""}});
    let path = format!("{maps}/m");
    let changed = cluster.call(Method::PATCH, &path, Some(change)).await;
    changed.expect("changed");
    cluster.until_phase("p", "Succeeded").await;
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
    cluster.until_phase("linked", "Succeeded").await;
    let log = cluster.log("linked", "c", 0);
    assert_eq!(log, "10.96.0.77:5432 at-10.96.0.77 443\n");

    let mut unlinked = spec;
    unlinked["enableServiceLinks"] = json!(false);
    cluster.pod("unlinked", unlinked).await;
    cluster.until_phase("unlinked", "Succeeded").await;
    let log = cluster.log("unlinked", "c", 0);
    assert_eq!(log, ": at-$(DB_MAIN_SERVICE_HOST) 443\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn config_maps_are_read_only_and_their_binary_part_is_for_volumes() {
    let cluster = Cluster::start().await;
    if !isolated(&cluster).await {
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
    cluster.until_phase("p", "Succeeded").await;
    let log = cluster.log("p", "c", 0);
    assert!(
        log.starts_with("text\n3\n") && log.contains("refused\n"),
        "{log}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sub_path_does_not_lead_out_of_its_volume() {
    let cluster = Cluster::start().await;
    if !isolated(&cluster).await {
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
        .until(&pod_path("p"), "started", |pod| {
            status(pod, "inside")["state"]["running"].is_object()
                && status(pod, "out")["state"]["waiting"]["message"].is_string()
        })
        .await;
    assert_eq!(
        status(&pod, "out")["state"]["waiting"]["message"],
        "failed to prepare subPath for volumeMount \"v\" of container \"out\""
    );
}
