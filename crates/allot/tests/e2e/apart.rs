//! Components that are started one by one, as separate processes.

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::Api;
use kube::runtime::wait::{await_condition, conditions};

use super::deploy::{Component, server, within};
use super::harness::{create, directory};

/// Without the certificate that pods trust, no pod with a token started.
#[tokio::test(flavor = "multi_thread")]
async fn regression_a_pod_runs_where_the_components_are_started_one_by_one() {
    let scratch = directory();
    let here = scratch.path();
    let (_server, admin, client) = server(here, &[]).await;
    let kubeconfig = format!("--kubeconfig={}", admin.display());
    let _controllers = Component::start(here, "controllers", &["controllers", &kubeconfig]);
    let _scheduler = Component::start(here, "scheduler", &["scheduler", &kubeconfig]);
    let root = format!("--root-dir={}", here.join("node").display());
    let node = [
        "node",
        "--node-name=n",
        "--runtime=simulated",
        "--listen=127.0.0.1:0",
    ];
    let _node = Component::start(here, "node", &[&node[..], &[&root, &kubeconfig]].concat());
    let nodes: Api<Node> = Api::all(client.clone());
    let up = await_condition(nodes, "n", |node: Option<&Node>| node.is_some());
    within(up).await.expect("watch");
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let there = |map: Option<&ConfigMap>| map.is_some();
    within(await_condition(maps.clone(), "kube-root-ca.crt", there))
        .await
        .expect("watch");
    let map = maps.get("kube-root-ca.crt").await.expect("the map");
    let certificate = std::fs::read_to_string(here.join("data/pki/ca.crt")).expect("a certificate");
    assert_eq!(map.data.expect("data")["ca.crt"].trim(), certificate.trim());
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: x, command: [x]}]}}";
    create(&client, pod).await;
    let pods: Api<Pod> = Api::default_namespaced(client);
    let running = await_condition(pods, "p", conditions::is_pod_running());
    within(running).await.expect("watch");
}
