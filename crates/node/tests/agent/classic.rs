//! Claims of 1.26 to 1.30, with the test driver of their documents.

use allot_driver_test::{DRIVER_NAME, plugin};
use allot_protos::podresources_v1::ListPodResourcesRequest;
use allot_protos::podresources_v1::pod_resources_lister_client::PodResourcesListerClient;
use allot_testing::wait::until_true;
use http::Method;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::harness::{Cluster, pod_path, shell};

struct Driver(CancellationToken);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Starts the driver's plugin and waits until the node agent has it.
async fn driver(cluster: &Cluster, instances: usize) -> Driver {
    let stop = CancellationToken::new();
    let mut config = plugin::Config::new(DRIVER_NAME, "n1", cluster.root());
    config.instances = instances;
    tokio::spawn(plugin::run(config, stop.clone()));
    cluster
        .wait_until("/api/v1/nodes/n1", "registered", |node| {
            node["metadata"]["annotations"]["allot.dev/registered-drivers"] == DRIVER_NAME
        })
        .await;
    Driver(stop)
}

fn claims(version: &str) -> String {
    format!("/apis/resource.k8s.io/{version}/namespaces/default/resourceclaims")
}

async fn claim(cluster: &Cluster, version: &str, name: &str, allocation: Value) {
    let body = json!({"apiVersion": format!("resource.k8s.io/{version}"), "kind": "ResourceClaim",
        "metadata": {"name": name}, "spec": {"resourceClassName": "example"}});
    cluster.post(&claims(version), body).await;
    let status = json!({"status": {"driverName": DRIVER_NAME, "allocation": allocation}});
    let path = format!("{}/{name}/status", claims(version));
    cluster
        .call(Method::PATCH, &path, Some(status))
        .await
        .expect("an allocation");
}

async fn reserve(cluster: &Cluster, version: &str, claim: &str, pod: &str, uid: &str) {
    let status =
        json!({"status": {"reservedFor": [{"resource": "pods", "name": pod, "uid": uid}]}});
    let path = format!("{}/{claim}/status", claims(version));
    cluster
        .call(Method::PATCH, &path, Some(status))
        .await
        .expect("a reservation");
}

fn pod_with(claim: &str) -> Value {
    let mut with = shell("set | grep user; sleep 1000");
    with["resources"] = json!({"claims": [{"name": "r"}]});
    let without = json!({"name": "without", "image": "none", "command": ["sh", "-c", "set | grep user; echo none; sleep 1000"]});
    json!({"containers": [with, without], "resourceClaims": [{"name": "r", "source": {"resourceClaimName": claim}}]})
}

const HANDLE: &str = r#"{"EnvVars":{"user_a":"b"},"NodeName":"n1"}"#;

/// A pod with an opaque allocation, from refusal to the end.
async fn check_opaque_allocation(minor: u8, version: &str, allocation: Value) {
    let cluster = Cluster::of_release(minor, version).await;
    let _driver = driver(&cluster, 0).await;
    claim(&cluster, version, "c", allocation).await;
    let uid = cluster.pod("p", pod_with("c")).await;
    let object = cluster.get(&format!("{}/c", claims(version))).await;
    let refused = format!(
        "pod p({uid}) is not allowed to use resource claim c({})",
        object["metadata"]["uid"].as_str().unwrap_or_default()
    );
    let message = cluster
        .wait_for_event("p", "FailedPrepareDynamicResources")
        .await;
    assert!(message.ends_with(&refused), "{message}");
    reserve(&cluster, version, "c", "p", &uid).await;
    cluster.wait_for_phase("p", "Running").await;
    cluster.wait_for_logs("p", &["c", "without"]).await;
    assert!(["user_a='b'\n", "user_a=b\n"].contains(&cluster.log("p", "c", 0).as_str()));
    assert_eq!(cluster.log("p", "without", 0), "none\n");
    assert_eq!(std::fs::read_dir(cluster.cdi()).unwrap().count(), 1);

    let socket = cluster.root().join("pod-resources/kubelet.sock");
    let channel = allot_protos::transport::connect(&socket).await.unwrap();
    let list = PodResourcesListerClient::new(channel)
        .list(ListPodResourcesRequest {})
        .await;
    let list = list.unwrap().into_inner();
    let resources = &list.pod_resources[0].containers[0].dynamic_resources[0];
    assert_eq!(
        (resources.class_name.as_str(), resources.claim_name.as_str()),
        ("example", "c")
    );
    let device = &resources.claim_resources[0].cdi_devices[0].name;
    assert!(
        device.starts_with("test-driver.cdi.k8s.io/test=claim-"),
        "{device}"
    );

    cluster.delete(&pod_path("p")).await;
    cluster.wait_until_gone("p").await;
    assert_eq!(std::fs::read_dir(cluster.cdi()).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_v1alpha1_is_prepared_and_given_back() {
    check_opaque_allocation(26, "v1alpha1", json!({"resourceHandle": HANDLE})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_v1alpha2_is_prepared_and_given_back() {
    let handles = json!([{"driverName": DRIVER_NAME, "data": HANDLE}]);
    check_opaque_allocation(27, "v1alpha2", json!({"resourceHandles": handles})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_generations_work_in_one_pod() {
    let cluster = Cluster::of_release(36, "v1alpha2").await;
    let _classic = driver(&cluster, 0).await;
    let (_newer, _) = cluster.driver().await;
    let handles = json!([{"driverName": DRIVER_NAME, "data": HANDLE}]);
    claim(
        &cluster,
        "v1alpha2",
        "old",
        json!({"resourceHandles": handles}),
    )
    .await;
    cluster.claim("new", "b").await;
    let mut container = shell("echo $user_a $DEVICE; sleep 1000");
    container["resources"] = json!({"claims": [{"name": "old"}, {"name": "new"}]});
    let entries = json!([{"name": "old", "resourceClaimName": "old"}, {"name": "new", "resourceClaimName": "new"}]);
    let uid = cluster
        .pod(
            "p",
            json!({"containers": [container], "resourceClaims": entries}),
        )
        .await;
    reserve(&cluster, "v1alpha2", "old", "p", &uid).await;
    cluster.reserve("new", "p", &uid).await;
    cluster.wait_for_phase("p", "Running").await;
    cluster.wait_for_logs("p", &["c"]).await;
    assert_eq!(cluster.log("p", "c", 0), "b b\n");
    cluster.delete(&pod_path("p")).await;
    cluster.wait_until_gone("p").await;
}

const SLICES: &str = "/apis/resource.k8s.io/v1alpha2/resourceslices";

#[tokio::test(flavor = "multi_thread")]
async fn what_plugins_have_is_published_and_what_was_allocated_is_prepared() {
    let cluster = Cluster::of_release(30, "v1alpha2").await;
    let running = driver(&cluster, 2).await;
    let count = |list: &Value| list["items"].as_array().map_or(0, Vec::len);
    let list = cluster
        .wait_until(SLICES, "published", |list| count(list) == 1)
        .await;
    let slice = &list["items"][0];
    let name = slice["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    assert!(name.starts_with("n1-test-driver.cdi.k8s.io-"), "{name}");
    assert_eq!(
        (&slice["nodeName"], &slice["driverName"]),
        (&json!("n1"), &json!(DRIVER_NAME))
    );
    assert_eq!(slice["metadata"]["ownerReferences"][0]["kind"], "Node");
    let instances = slice["namedResources"]["instances"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    assert_eq!(instances.len(), 2);
    // Changes by other components are reverted.
    cluster.delete(&format!("{SLICES}/{name}")).await;
    cluster
        .wait_until(SLICES, "published again", |list| {
            count(list) == 1 && list["items"][0]["metadata"]["name"] != name.as_str()
        })
        .await;

    let result = json!({"vendorRequestParameters": {"size": "large"}, "namedResources": {"name": "instance-01"}});
    let structured =
        json!({"nodeName": "n1", "vendorClaimParameters": {"color": "black"}, "results": [result]});
    let handles = json!([{"driverName": DRIVER_NAME, "structuredData": structured}]);
    claim(
        &cluster,
        "v1alpha2",
        "c",
        json!({"resourceHandles": handles}),
    )
    .await;
    let uid = cluster.pod("p", pod_with("c")).await;
    reserve(&cluster, "v1alpha2", "c", "p", &uid).await;
    cluster.wait_for_phase("p", "Running").await;
    until_true("two lines are logged", || {
        cluster.log("p", "c", 0).lines().count() >= 2
    })
    .await;
    let log = cluster.log("p", "c", 0).replace('\'', "");
    assert_eq!(log, "user_color=black\nuser_size=large\n");
    cluster.delete(&pod_path("p")).await;
    cluster.wait_until_gone("p").await;

    drop(running);
    cluster
        .wait_until(SLICES, "empty", |list| count(list) == 0)
        .await;
}
