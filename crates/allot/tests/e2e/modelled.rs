//! What nodes and the program do with modelled devices: prepare claims, let devices fail, run a fleet.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::{DeleteParams, LogParams};
use kube::runtime::wait::await_condition;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::hardware::{allocated, pod, pod_with, request, unschedulable, up};
use super::harness::{ALLOT, PATIENCE, Up, directory};

/// Runs a command of the program on a cluster; its output, or its error.
pub(super) fn allot(up: &Up, arguments: &[&str]) -> Result<String, String> {
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

/// The members of a pod's spec by which its container sleeps in a process, with the devices of its claim.
fn sleeps() -> Value {
    json!({"containers": [{
        "name": "ctr", "image": "x", "command": ["sleep", "600"], "resources": {"claims": [{"name": "devices"}]},
    }]})
}

/// Checks the error of `kubectl logs` for a simulated pod, which was about a file that does not exist.
async fn no_logs(up: &Up, pod: &str) {
    let logs = up.pods().logs(pod, &LogParams::default()).await;
    let error = logs.expect_err("no program runs").to_string();
    assert!(
        error.contains("is simulated: no program runs in it"),
        "{error}"
    );
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
    no_logs(&up, "user").await;
    up.pods()
        .delete("user", &DeleteParams::default())
        .await
        .expect("deleted");
    let gone = |pod: Option<&Pod>| pod.is_none();
    up.wait_until("user", "end", gone).await;
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
    up.wait_until("user", "be told", shows("Unhealthy")).await;
    allot(&up, &["hardware", "restore", "node-1", &device]).expect("done");
    up.wait_until("user", "be told", shows("Healthy")).await;
    let error = allot(&up, &["hardware", "restore", "node-1", &device]).expect_err("nothing to do");
    assert!(error.contains("has not failed"), "{error}");

    // A failure evicts.
    let said = allot(&up, &["hardware", "fail", "node-1", &device]).expect("done");
    assert_eq!(
        said,
        format!("{device} of gpu.nvidia.com on node-1 is unhealthy, with a taint NoExecute\n")
    );
    up.wait_until("user", "be evicted", |pod: Option<&Pod>| pod.is_none())
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

/// The health of the only device of a pod.
fn shows(health: &'static str) -> impl Fn(Option<&Pod>) -> bool {
    move |pod: Option<&Pod>| {
        let status =
            serde_json::to_value(pod.and_then(|pod| pod.status.as_ref())).unwrap_or_default();
        status["containerStatuses"][0]["allocatedResourcesStatus"][0]["resources"][0]["health"]
            == health
    }
}

/// Waits for a slice of a driver that differs from all of `before`.
async fn published(up: &Up, driver: &str, before: &[String]) -> ResourceSlice {
    let config = watcher::Config::default().fields(&format!("spec.driver={driver}"));
    let slices = watcher(Api::<ResourceSlice>::all(up.client.clone()), config);
    let mut slices = std::pin::pin!(slices.default_backoff().applied_objects());
    let found = async {
        loop {
            let slice = slices.next().await.expect("a watch");
            if let Ok(slice) = slice
                && !before.contains(&version(&slice))
            {
                return slice;
            }
        }
    };
    let found = tokio::time::timeout(PATIENCE, found).await;
    found.unwrap_or_else(|_| panic!("no slice of {driver} was published"))
}

fn version(slice: &ResourceSlice) -> String {
    slice.resource_version().expect("a version")
}

/// Names of the devices of a slice, and of those that are tainted.
fn devices(slice: &ResourceSlice) -> (Vec<&str>, Vec<&str>) {
    let all = slice.spec.devices.iter().flatten();
    let tainted = all.clone().filter(|it| it.taints.is_some());
    (
        all.map(|it| it.name.as_str()).collect(),
        tainted.map(|it| it.name.as_str()).collect(),
    )
}

/// Failures of devices that a driver publishes were undone by the driver or lost with it, and their health was shown
/// nowhere. The driver of the model is one, the example driver another.
#[tokio::test(flavor = "multi_thread")]
async fn regression_failures_outlive_the_drivers_of_a_node() {
    let directory = directory();
    let flags = [
        "--runtime",
        "process",
        "--hardware",
        "tpu-v5e",
        "--driver",
        "gpu",
    ];
    let up = Up::start(directory.path(), &flags).await;
    let fail = |up: &Up, arguments: &[&str]| {
        allot(up, &[&["hardware", "fail", "node-0"], arguments].concat()).expect("done")
    };
    let drivers = ["tpu.google.com", "gpu.example.com"];
    let mut before = Vec::new();
    for driver in drivers {
        let name = driver.replace('.', "-");
        let one = json!({"requests": [request("one", driver, 1, "")]});
        pod_with(&up, &name, one, sleeps()).await;
        up.wait_until(&name, "be healthy", shows("Healthy")).await;
        let device = allocated(&up, &name).await[0].2.clone();
        fail(&up, &[device.as_str(), "--unhealthy", "--message", "fan"]);
        up.wait_until(&name, "be unhealthy", shows("Unhealthy"))
            .await;
        allot(&up, &["hardware", "restore", "node-0", &device]).expect("done");
        up.wait_until(&name, "be healthy again", shows("Healthy"))
            .await;

        let first = published(&up, driver, &[]).await;
        let last = devices(&first).0.last().expect("a device").to_string();
        fail(&up, &[last.as_str(), "--unplug"]);
        let second = published(&up, driver, &[version(&first)]).await;
        assert!(!devices(&second).0.contains(&last.as_str()));
        fail(&up, &[device.as_str(), "--taint", "NoSchedule"]);
        let third = published(&up, driver, &[version(&first), version(&second)]).await;
        assert_eq!(devices(&third).1, [device.as_str()]);
        before.push((version(&third), last, device));
        // Its container would outlive the cluster.
        let now = DeleteParams::default().grace_period(1);
        up.pods().delete(&name, &now).await.expect("deleted");
        up.wait_until(&name, "end", |pod: Option<&Pod>| pod.is_none())
            .await;
    }
    assert!(up.stop(), "it stops well");
    let up = Up::start(directory.path(), &flags).await;
    for (driver, (version, unplugged, tainted)) in drivers.iter().zip(&before) {
        let slice = published(&up, driver, std::slice::from_ref(version)).await;
        let (there, failed) = devices(&slice);
        assert!(!there.contains(&unplugged.as_str()), "{there:?}");
        assert_eq!(failed, [tainted.as_str()]);
    }
    let said = allot(&up, &["hardware", "restore", "node-0"]).expect("done");
    assert_eq!(said, "4 devices restored\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_get_the_environment_of_modelled_devices() {
    let up = Up::in_memory_with(&["--runtime", "process", "--hardware", "tpu-v5e"]).await;
    let all = json!({"requests": [{"name": "tpu", "exactly": {"deviceClassName": "tpu.google.com", "allocationMode": "All"}}]});
    pod_with(&up, "user", all, sleeps()).await;
    up.running("user").await;
    let environment = up.exec("user", "ctr", &["printenv"]).await;
    for line in ["TPU_VISIBLE_CHIPS=0,1,2,3", "TPU_TOPOLOGY=4x4"] {
        assert!(
            environment.lines().any(|found| found == line),
            "{environment}"
        );
    }
}

/// Containers with claims for CPUs and network cards had no environment variable for them.
#[tokio::test(flavor = "multi_thread")]
async fn regression_processes_see_their_cpus_and_interfaces() {
    let up = Up::in_memory_with(&["--runtime", "process", "--hardware", "rdma-nic+cpu"]).await;
    let devices = json!({"requests": [
        {"name": "cpu", "exactly": {"deviceClassName": "dra.cpu", "capacity": {"requests": {"dra.cpu/cpu": "4"}}}},
        request("nic", "dranet", 2, "device.attributes[\"dra.net\"].rdma"),
    ]});
    let mut sets = BTreeSet::new();
    for name in ["one", "two"] {
        pod_with(&up, name, devices.clone(), sleeps()).await;
        up.running(name).await;
        let environment = up.exec(name, "ctr", &["printenv"]).await;
        let value = |start: &str| {
            let lines = environment.lines();
            let found = lines.filter_map(|line| line.strip_prefix(start)).next();
            found.unwrap_or_else(|| panic!("{start}: {environment}"))
        };
        let interfaces: Vec<&str> = value("DRA_NET_INTERFACES=").split(',').collect();
        assert!(interfaces.len() == 2 && interfaces.iter().all(|it| it.starts_with("rdma")));
        let (_, cpus) = value("DRA_CPUSET_").split_once('=').expect("a value");
        sets.insert(cpus.to_owned());
    }
    assert_eq!(sets, BTreeSet::from(["0-3", "4-7"].map(str::to_owned)));
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
    // Of all nodes but the first the address was refused: its server proved to be that of the first one alone.
    for pod in nodes.values() {
        no_logs(&up, pod).await;
    }
    // Devices of a fleet fail as well.
    let (node, evicted) = nodes.first_key_value().expect("a node");
    allot(&up, &["hardware", "fail", node, "gpu-0"]).expect("done");
    up.wait_until(evicted, "be evicted", |pod: Option<&Pod>| pod.is_none())
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
