//! Explanations of whole clusters, made of a few objects.

use allot_scheduler::Config;
use allot_scheduler::actions::Action;
use serde_json::{Value, json};

use super::cluster_objects::{ClusterObjects, LoadedScheduler};
use super::report::Report;
use crate::cmd::snapshot::Snapshot;

mod bound;
mod consumers;
mod daemon_sets;
mod extended;
mod nearest;
mod pending;
mod reasons;
mod replicas;
mod rights;

pub(super) fn dra(kind: &str, name: &str, namespace: Option<&str>, spec: Value) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": kind, "spec": spec,
        "metadata": {"name": name, "namespace": namespace, "uid": format!("{kind}-{name}")}})
}

pub(super) fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name},
        "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}]}})
}

/// A slice of driver `d` with one pool per node.
pub(super) fn slice(node: &str, devices: Value) -> Value {
    let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
    dra(
        "ResourceSlice",
        node,
        None,
        json!({"driver": "d", "nodeName": node, "pool": pool,
        "devices": devices}),
    )
}

pub(super) fn class(expression: &str) -> Value {
    let selectors = json!([{"cel": {"expression": expression}}]);
    dra("DeviceClass", "gpu", None, json!({"selectors": selectors}))
}

pub(super) fn request(more: Value) -> Value {
    let mut exactly = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1});
    for (field, value) in more.as_object().into_iter().flatten() {
        exactly[field] = value.clone();
    }
    json!({"name": "r", "exactly": exactly})
}

pub(super) fn claim(name: &str, request: Value) -> Value {
    dra(
        "ResourceClaim",
        name,
        Some("default"),
        json!({"devices": {"requests": [request]}}),
    )
}

/// A claim with these devices of a node, reserved for a pod if one is named.
pub(super) fn held(name: &str, node: &str, devices: Value, pod: Option<&str>) -> Value {
    let mut claim = claim(name, request(json!({})));
    let devices = devices.as_array().cloned().unwrap_or_default();
    let result = |device: Value| {
        let mut result = json!({"request": "r", "driver": "d", "pool": node});
        match device {
            Value::String(name) => result["device"] = json!(name),
            other => other
                .as_object()
                .into_iter()
                .flatten()
                .for_each(|(field, value)| {
                    result[field] = value.clone();
                }),
        }
        result
    };
    let results: Vec<Value> = devices.into_iter().map(result).collect();
    let terms = json!([{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": [node]}]}]);
    let reserved: Vec<Value> = pod
        .map(|pod| json!({"resource": "pods", "name": pod, "uid": pod}))
        .into_iter()
        .collect();
    claim["status"] = json!({"reservedFor": reserved, "allocation": {
        "devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": terms}}});
    claim
}

pub(super) fn pod(name: &str, entry: Value) -> Value {
    let mut entry = entry;
    entry["name"] = json!("c");
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "c", "image": "x"}],
            "resourceClaims": [entry]}})
}

/// The pod `p` that uses the claim `claim`.
pub(super) fn user() -> Value {
    pod("p", json!({"resourceClaimName": "claim"}))
}

/// The template `t` of claims for one device.
pub(super) fn template() -> Value {
    dra(
        "ResourceClaimTemplate",
        "t",
        Some("default"),
        json!({"spec": {"devices": {"requests": [request(json!({}))]}}}),
    )
}

/// The spec of a pod with a claim from [`template`].
pub(super) fn templated() -> Value {
    pod("unused", json!({"resourceClaimTemplateName": "t"}))["spec"].clone()
}

fn cluster_of(objects: &[Value]) -> ClusterObjects {
    let snapshot = Snapshot {
        objects: objects.to_vec(),
        namespace: "default".to_owned(),
        ..Snapshot::default()
    };
    ClusterObjects::new(snapshot, "default".to_owned())
}

pub(super) fn loaded(objects: &[Value]) -> LoadedScheduler {
    let cluster = cluster_of(objects);
    cluster.load(Config::default()).expect("it can be read")
}

/// What `allot explain -f` prints about a workload; and whether it fits.
pub(super) fn of_workload(objects: &[Value], workload: &Value, json: bool) -> (String, bool) {
    let mut cluster = cluster_of(objects);
    let added = cluster.add(vec![workload.clone()]).expect("added");
    let mut loaded = cluster.load(Config::default()).expect("it can be read");
    let mut out = Vec::new();
    let fits = super::replicas::explain(&mut loaded, &added.workloads[0], &mut out, json);
    (
        String::from_utf8(out).expect("UTF-8"),
        fits.expect("explained"),
    )
}

/// What `allot explain p` prints.
pub(super) fn explained(objects: &[Value]) -> String {
    let mut loaded = loaded(objects);
    let report = Report::new(&mut loaded, "default", "p").expect("a report");
    let mut out = Vec::new();
    report.print(&mut out, false).expect("written");
    String::from_utf8(out).expect("UTF-8")
}

/// What the events of the scheduler say.
pub(super) fn events(objects: &[Value]) -> String {
    let mut loaded = loaded(objects);
    while loaded.core.schedule_one(loaded.time) {}
    let told = loaded
        .core
        .take_actions()
        .into_iter()
        .filter_map(|action| match action {
            Action::Reject(rejected) => Some(allot_scheduler::message::explained(
                &rejected.message,
                rejected.explanation.as_deref(),
            )),
            Action::RecordMissingClaim { text, .. } => Some(text),
            _ => None,
        });
    told.collect::<Vec<_>>().join("\n")
}
