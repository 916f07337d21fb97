//! What the status of a DeviceTaintRule says.

use allot_controllers::Config;
use allot_model::features::Features;
use serde_json::{Value, json};

use super::harness::{Cluster, name};

const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
const RULES: &str = "/apis/resource.k8s.io/v1beta2/devicetaintrules";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// Pods p-0, p-1, … that run on node n, each with a share of device gpu-0 through its own claim.
async fn cluster_with_users(users: usize) -> Cluster {
    let mut cluster = Cluster::bare_with("resource.k8s.io/v1beta2=true", Features::default()).await;
    cluster.start_controllers(Config::embedded());
    cluster.node("n").await;
    let slice = json!({
        "metadata": {"name": "s"},
        "spec": {
            "driver": "d.example.com", "nodeName": "n",
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0", "allowMultipleAllocations": true}],
        },
    });
    cluster.create(SLICES, slice).await;
    for index in 0..users {
        let request = json!({"name": "gpu", "exactly": {"deviceClassName": "gpu"}});
        let claim = json!({
            "metadata": {"name": format!("c-{index}")},
            "spec": {"devices": {"requests": [request]}},
        });
        cluster.create(CLAIMS, claim).await;
        let entry = json!({"name": "gpu", "resourceClaimName": format!("c-{index}")});
        let pod = json!({
            "metadata": {"name": format!("p-{index}")},
            "spec": {
                "containers": [{"name": "main", "image": "registry.invalid/main:1"}],
                "resourceClaims": [entry],
            },
        });
        let pod = cluster.create(PODS, pod).await;
        let result = json!({
            "request": "gpu", "driver": "d.example.com", "pool": "n", "device": "gpu-0",
            "shareID": format!("00000000-0000-4000-8000-00000000000{index}"),
        });
        let user = json!({"resource": "pods", "name": name(&pod), "uid": pod["metadata"]["uid"]});
        let status = json!({"status": {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [user],
        }});
        cluster
            .patch(&format!("{CLAIMS}/c-{index}/status"), status)
            .await;
        cluster.bind("default", name(&pod), "n").await;
        cluster.run_pod("default", name(&pod)).await;
    }
    cluster
}

async fn rule(cluster: &Cluster, effect: &str) {
    let spec = json!({
        "deviceSelector": {"driver": "d.example.com"},
        "taint": {"key": "example.com/bad", "effect": effect},
    });
    cluster
        .create(RULES, json!({"metadata": {"name": "r"}, "spec": spec}))
        .await;
}

/// Waits until the message begins so.
async fn says(cluster: &Cluster, start: &str) -> Value {
    let message = |rule: &Value| {
        let message = rule["status"]["conditions"][0]["message"].as_str();
        message.unwrap_or_default().starts_with(start)
    };
    cluster.until(&format!("{RULES}/r"), start, message).await
}

#[tokio::test]
async fn a_shared_device_counts_for_each_of_its_claims() {
    let cluster = cluster_with_users(2).await;
    rule(&cluster, "None").await;
    let found = "1 published device selected. 2 allocated devices selected. 2 pods would be evicted in 1 namespace if";
    says(&cluster, found).await;
}

#[tokio::test]
async fn all_pods_are_announced_before_the_first_is_evicted() {
    let cluster = cluster_with_users(8).await;
    rule(&cluster, "NoExecute").await;
    says(&cluster, "8 pods need to be evicted in 1 namespace.").await;
    // No kubelet runs: they stay terminating, which is sufficient.
    let rule = says(&cluster, "8 pods evicted").await;
    assert_eq!(rule["status"]["conditions"][0]["reason"], "Completed");
}

#[tokio::test]
async fn a_pod_that_is_going_already_counts_as_evicted() {
    let cluster = cluster_with_users(2).await;
    cluster.delete(&format!("{PODS}/p-0")).await;
    let going = |pod: &Value| pod["metadata"]["deletionTimestamp"].is_string();
    cluster.until(&format!("{PODS}/p-0"), "going", going).await;
    rule(&cluster, "NoExecute").await;
    says(&cluster, "2 pods evicted since starting").await;
}
