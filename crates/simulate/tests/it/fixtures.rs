//! Small clusters and workloads.

use std::time::Duration;

use allot_scheduler::Config;
use allot_simulate::{Options, Report, Simulation, Workload, prepare};
use jiff::Timestamp;
use serde_json::{Value, json};

pub fn node(name: &str, cpu: &str) -> Value {
    let allocatable = json!({"cpu": cpu, "memory": "64Gi", "pods": "110"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": allocatable},
    })
}

pub fn slice(node: &str, devices: Value) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": format!("{node}-slice")},
        "spec": {
            "driver": "gpu", "nodeName": node, "devices": devices,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        },
    })
}

/// Plain devices `gpu-0` and so on.
pub fn devices(count: usize) -> Value {
    (0..count)
        .map(|i| json!({"name": format!("gpu-{i}")}))
        .collect()
}

pub fn class() -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}})
}

fn request(count: u64, more: &Value) -> Value {
    let mut exactly =
        json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count});
    for (field, value) in more.as_object().into_iter().flatten() {
        exactly[field] = value.clone();
    }
    json!({"devices": {"requests": [{"name": "r", "exactly": exactly}]}})
}

pub fn template(name: &str, count: u64, more: Value) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": name},
        "spec": {"spec": request(count, &more)},
    })
}

pub fn claim(name: &str, count: u64) -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
        "spec": request(count, &Value::Null),
    })
}

/// A pod that uses `template:NAME` or `claim:NAME`, or nothing; with more in its specification.
pub fn pod(name: &str, uses: &str, times: Value, more: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": {}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    for (field, value) in times.as_object().into_iter().flatten() {
        pod["metadata"]["annotations"][format!("simulate.allot.dev/{field}")] = value.clone();
    }
    for (field, value) in more.as_object().into_iter().flatten() {
        pod["spec"][field] = value.clone();
    }
    let entry = match uses.split_once(':') {
        Some(("template", name)) => json!({"name": "d", "resourceClaimTemplateName": name}),
        Some((_, name)) => json!({"name": "d", "resourceClaimName": name}),
        None => return pod,
    };
    pod["spec"]["resourceClaims"] = json!([entry]);
    pod
}

/// Simulates a workload on a cluster.
pub fn simulate_with(
    config: Config,
    options: Options,
    cluster: Vec<Value>,
    workload: Vec<Value>,
) -> Report {
    let features = config.features.clone();
    let mut expected = Workload::default();
    let nodes: Vec<Value> = cluster
        .iter()
        .filter(|o| o["kind"] == "Node")
        .cloned()
        .collect();
    let now = Timestamp::UNIX_EPOCH;
    expected
        .add(workload, "default", &nodes, &features, now)
        .expect("a workload");
    let stored = |object| {
        let mut object = prepare::current(object, now).expect("an object");
        let kind = object["kind"].as_str().unwrap_or_default();
        if kind.starts_with("ResourceClaim") || kind == "Pod" {
            object["metadata"]["namespace"] = json!("default");
        }
        object
    };
    let cluster = cluster.into_iter().map(stored).collect();
    let mut simulation = Simulation::new(config, options, cluster).expect("a cluster");
    simulation.add_workload(expected).expect("new objects");
    simulation.run().expect("a simulation");
    simulation.report()
}

pub fn simulate(cluster: Vec<Value>, workload: Vec<Value>) -> Report {
    let options = Options {
        sample: Duration::from_secs(10),
        ..Options::default()
    };
    simulate_with(Config::default(), options, cluster, workload)
}

/// `pod node placed ended` of each pod, with its devices.
pub fn lines(report: &Report) -> Vec<String> {
    let time = |at: Option<f64>| at.map_or("-".to_owned(), |at| at.to_string());
    let line = |pod: &allot_simulate::PodReport| {
        let name = pod.pod.strip_prefix("default/").unwrap_or(&pod.pod);
        let node = if pod.node.is_empty() { "-" } else { &pod.node };
        let devices = pod.devices.join(" ");
        format!(
            "{name} {node} {} {} {devices}",
            time(pod.placed),
            time(pod.ended)
        )
        .trim_end()
        .to_owned()
    };
    report.pods.iter().map(line).collect()
}
