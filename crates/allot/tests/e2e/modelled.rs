//! What nodes and the program do with modelled devices: prepare claims, let devices fail, run a fleet.

use std::collections::BTreeMap;
use std::process::Command;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::Api;
use kube::api::DeleteParams;
use kube::runtime::wait::await_condition;
use serde_json::json;

use super::hardware::{allocated, pod, pod_with, request, unschedulable, up};
use super::harness::{ALLOT, PATIENCE, Up, directory};

/// Runs a command of the program; its output, or its error.
fn allot(up: &Up, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(ALLOT)
        .args(arguments)
        .arg("--kubeconfig")
        .arg(&up.kubeconfig)
        .output()
        .expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    match output.status.success() {
        true => Ok(text(output.stdout)),
        false => Err(text(output.stderr)),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_a_driver_that_is_not_there_is_prepared() {
    let up = Up::in_memory_with(&["--runtime", "simulated", "--no-driver"]).await;
    let slice = "
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: hand-written}
spec:
  driver: hand.example.com
  nodeName: node-0
  pool: {name: node-0, generation: 1, resourceSliceCount: 1}
  devices: [{name: a}]
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: hand}
spec: {selectors: [{cel: {expression: device.driver == 'hand.example.com'}}]}
";
    up.create(slice).await;
    pod(
        &up,
        "user",
        json!({"requests": [request("a", "hand", 1, "")]}),
    )
    .await;
    up.running("user").await;
    let user = up.pods().get("user").await.expect("the pod");
    let status = serde_json::to_value(user.status).expect("JSON");
    let devices = &status["containerStatuses"][0]["allocatedResourcesStatus"][0]["resources"];
    assert_eq!(devices[0]["health"], "Healthy", "{status}");
    up.pods()
        .delete("user", &DeleteParams::default())
        .await
        .expect("deleted");
    let gone = |pod: Option<&Pod>| pod.is_none();
    up.until("user", "end", gone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn devices_fail_and_are_restored() {
    let up = up("h100=2").await;
    let one = json!({"requests": [request("gpu", "gpu.nvidia.com", 1, "")]});
    let on = |node: &str| json!({"nodeSelector": {"kubernetes.io/hostname": node}});
    pod_with(&up, "user", one.clone(), on("node-1")).await;
    up.running("user").await;
    let device = allocated(&up, "user").await[0].2.clone();

    // Unhealthy: the pod continues, and its status shows it.
    allot(
        &up,
        &[
            "hardware",
            "fail",
            "node-1",
            &device,
            "--unhealthy",
            "--message",
            "fan",
        ],
    )
    .expect("done");
    let shows = |health: &'static str| {
        move |pod: Option<&Pod>| {
            let status =
                serde_json::to_value(pod.and_then(|pod| pod.status.as_ref())).unwrap_or_default();
            status["containerStatuses"][0]["allocatedResourcesStatus"][0]["resources"][0]["health"]
                == health
        }
    };
    up.until("user", "be told", shows("Unhealthy")).await;
    allot(&up, &["hardware", "restore", "node-1", &device]).expect("done");
    up.until("user", "be told", shows("Healthy")).await;
    let error = allot(&up, &["hardware", "restore", "node-1", &device]).expect_err("nothing to do");
    assert!(error.contains("has not failed"), "{error}");

    // A failure evicts.
    let said = allot(&up, &["hardware", "fail", "node-1", &device]).expect("done");
    assert_eq!(
        said,
        format!("{device} of gpu.nvidia.com on node-1 is unhealthy, with a taint NoExecute\n")
    );
    up.until("user", "be evicted", |pod: Option<&Pod>| pod.is_none())
        .await;

    // Seven are left, and six when one is pulled out.
    allot(&up, &["hardware", "fail", "node-1", "gpu-7", "--unplug"]).expect("done");
    let all = json!({"requests": [request("gpu", "gpu.nvidia.com", 8, "")]});
    pod_with(&up, "all", all, on("node-1")).await;
    unschedulable(&up, "all").await;
    let error = allot(&up, &["hardware", "fail", "node-1", "gpu-7"]).expect_err("it is gone");
    assert!(error.contains("has no device gpu-7"), "{error}");
    assert_eq!(
        allot(&up, &["hardware", "restore", "node-1"]).expect("done"),
        "2 devices restored\n"
    );
    up.running("all").await;
    let error = allot(&up, &["hardware", "fail", "nowhere", "gpu-0"]).expect_err("no such node");
    assert!(error.contains("node nowhere has no devices"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_get_the_environment_of_modelled_devices() {
    let up = Up::in_memory_with(&["--runtime", "process", "--hardware", "tpu-v5e"]).await;
    let all = json!({"requests": [{"name": "tpu", "exactly": {"deviceClassName": "tpu.google.com", "allocationMode": "All"}}]});
    let container = json!([{
        "name": "ctr", "image": "x", "command": ["sleep", "600"], "resources": {"claims": [{"name": "devices"}]},
    }]);
    pod_with(&up, "user", all, json!({"containers": container})).await;
    up.running("user").await;
    let environment = up.exec("user", "ctr", &["printenv"]).await;
    for line in ["TPU_VISIBLE_CHIPS=0,1,2,3", "TPU_TOPOLOGY=4x4"] {
        assert!(
            environment.lines().any(|found| found == line),
            "{environment}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_runs_pods_and_stops() {
    let up = Up::in_memory_with(&["--runtime", "simulated", "--nodes", "200"]).await;
    let one = json!({"requests": [request("gpu", "gpu.example.com", 8, "")]});
    let mut nodes = BTreeMap::new();
    for number in 0..20 {
        pod(&up, &format!("pod-{number}"), one.clone()).await;
    }
    for number in 0..20 {
        let name = format!("pod-{number}");
        up.running(&name).await;
        let pod = up.pods().get(&name).await.expect("the pod");
        let node = pod.spec.and_then(|spec| spec.node_name).expect("a node");
        nodes.insert(node, name);
    }
    assert_eq!(nodes.len(), 20);
    // Devices of a fleet fail as well.
    let (node, evicted) = nodes.first_key_value().expect("a node");
    allot(&up, &["hardware", "fail", node, "gpu-0"]).expect("done");
    up.until(evicted, "be evicted", |pod: Option<&Pod>| pod.is_none())
        .await;
    assert!(up.stop(), "it stops well");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_takes_the_place_of_drivers_that_are_modelled_now() {
    let directory = directory();
    // More nodes than have an agent of their own.
    let fleet = ["--runtime", "simulated", "--nodes", "66"];
    let up = Up::start(directory.path(), &[&fleet[..], &["--no-driver"]].concat()).await;
    let slice = |name: &str, driver: &str, node: &str| {
        format!(
            "
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {{name: {name}}}
spec:
  driver: {driver}
  nodeName: {node}
  pool: {{name: {node}, generation: 1, resourceSliceCount: 1}}
  devices: [{{name: a}}]
"
        )
    };
    for (name, driver, node) in [
        ("real", "gpu.example.com", "node-65"),
        ("elsewhere", "gpu.example.com", "another-node"),
        ("other", "other.example.com", "node-65"),
    ] {
        up.create(&slice(name, driver, node)).await;
    }
    assert!(up.stop(), "it stops well");
    let up = Up::start(directory.path(), &fleet).await;
    let slices: Api<ResourceSlice> = Api::all(up.client.clone());
    let gone = await_condition(slices.clone(), "real", |slice: Option<&ResourceSlice>| {
        slice.is_none()
    });
    let gone = tokio::time::timeout(PATIENCE, gone).await;
    gone.expect("in time").expect("a watch");
    for name in ["elsewhere", "other"] {
        slices.get(name).await.expect("it stays");
    }
    assert!(up.stop(), "it stops well");
}
