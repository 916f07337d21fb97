//! Short ways to write problems and results in tests.

use allot_allocator::problem::Problem;
use allot_allocator::{Allocator, Cluster, Limits, Outcome, Policy, SelectorCache};
use k8s_openapi::api::resource::v1 as api;
use serde_json::{Value, json};

/// The driver of all devices in tests that need only one.
pub const DRIVER: &str = "gpu.example.com";

/// A problem with all features on, node `n1` (zone `a`) and a class `any` that selects everything.
pub fn problem(slices: Vec<Value>, claims: Vec<Value>) -> Problem {
    read(json!({
        "features": [
            "DRAAdminAccess", "DRAConsumableCapacity", "DRADeviceTaints", "DRAPartitionableDevices",
            "DRAPrioritizedList", "DRADeviceBindingConditions+DRAResourceClaimDeviceStatus",
        ],
        "nodes": [{"metadata": {"name": "n1", "labels": {"zone": "a"}}}],
        "deviceClasses": [{"metadata": {"name": "any"}, "spec": {}}],
        "resourceSlices": slices,
        "claims": claims,
    }))
}

/// Reads anything from JSON.
pub fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A slice that is the whole of its pool, for node `n1`. `fields` are added to its spec.
pub fn slice(pool: &str, devices: Vec<Value>, fields: Value) -> Value {
    let mut spec = json!({
        "driver": DRIVER,
        "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
        "devices": devices,
    });
    if fields.get("allNodes").is_none()
        && fields.get("nodeSelector").is_none()
        && fields.get("perDeviceNodeSelection").is_none()
    {
        spec["nodeName"] = "n1".into();
    }
    merge(&mut spec, fields);
    json!({"metadata": {"name": format!("slice-{pool}")}, "spec": spec})
}

/// A device with fields.
pub fn device(name: &str, fields: Value) -> Value {
    let mut device = json!({"name": name});
    merge(&mut device, fields);
    device
}

/// Devices without any properties.
pub fn plain(names: &[&str]) -> Vec<Value> {
    names.iter().map(|name| device(name, json!({}))).collect()
}

/// A claim in namespace `default`. `fields` are added to `spec.devices`.
pub fn claim(name: &str, requests: Vec<Value>, fields: Value) -> Value {
    let mut devices = json!({"requests": requests});
    merge(&mut devices, fields);
    json!({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"devices": devices}})
}

/// A request for a number of devices of class `any`.
pub fn request(name: &str, count: i64, fields: Value) -> Value {
    json!({"name": name, "exactly": wanted(count, fields)})
}

/// A request for all devices of class `any`.
pub fn all(name: &str, fields: Value) -> Value {
    let mut exactly = json!({"deviceClassName": "any", "allocationMode": "All"});
    merge(&mut exactly, fields);
    json!({"name": name, "exactly": exactly})
}

/// A request with alternatives, each a name, a number of devices and further fields.
pub fn first_available(name: &str, alternatives: Vec<(&str, i64, Value)>) -> Value {
    let list = alternatives.into_iter().map(|(name, count, fields)| {
        let mut wanted = wanted(count, fields);
        wanted["name"] = name.into();
        wanted
    });
    json!({"name": name, "firstAvailable": list.collect::<Vec<_>>()})
}

fn wanted(count: i64, fields: Value) -> Value {
    let mut wanted =
        json!({"deviceClassName": "any", "allocationMode": "ExactCount", "count": count});
    merge(&mut wanted, fields);
    wanted
}

fn merge(target: &mut Value, fields: Value) {
    let Value::Object(fields) = fields else {
        panic!("fields are an object")
    };
    for (key, value) in fields {
        target[key] = value;
    }
}

/// Solves a problem on its first node and compares: per claim `request=pool/device …`, claims separated by `; `; or
/// `nothing`, `error: text`, `node error: text`, `gave up`.
#[track_caller]
pub fn check(problem: &Problem, expected: &str) -> Vec<api::AllocationResult> {
    let (text, results) = solve(problem, &Limits::default());
    assert_eq!(text, expected);
    results
}

/// What [`check`] compares, and the results behind it.
pub fn solve(problem: &Problem, limits: &Limits<'_>) -> (String, Vec<api::AllocationResult>) {
    solve_with(problem, Policy::FirstFit, limits)
}

/// [`solve`] under a policy.
pub fn solve_with(
    problem: &Problem,
    policy: Policy,
    limits: &Limits<'_>,
) -> (String, Vec<api::AllocationResult>) {
    solve_in(&problem.cluster(), problem, policy, limits)
}

/// [`solve_with`] in a cluster other than that of the problem.
pub fn solve_in(
    cluster: &Cluster,
    problem: &Problem,
    policy: Policy,
    limits: &Limits<'_>,
) -> (String, Vec<api::AllocationResult>) {
    let claims = problem.claims(&SelectorCache::new());
    let nodes = problem.nodes();
    let outcome = Allocator::with_policy(policy).allocate(cluster, &nodes[0], &claims, limits);
    let text = match outcome {
        Outcome::Allocated(found) => {
            let mut shares = 0;
            let mut share_id = || {
                shares += 1;
                format!("share-{shares}")
            };
            let results = found.results(&claims, &mut share_id).unwrap();
            return (describe(&results), results);
        }
        Outcome::DoesNotFit => "nothing".to_owned(),
        Outcome::Failed(error) => match error.kind {
            allot_allocator::ErrorKind::Fatal => format!("error: {error}"),
            allot_allocator::ErrorKind::Node => format!("node error: {error}"),
        },
        Outcome::GaveUp { .. } => "gave up".to_owned(),
        Outcome::Interrupted => "interrupted".to_owned(),
    };
    (text, Vec::new())
}

/// Results in one line.
pub fn describe(results: &[api::AllocationResult]) -> String {
    let claim = |result: &api::AllocationResult| {
        let devices = result
            .devices
            .iter()
            .flat_map(|d| d.results.iter().flatten());
        let devices = devices.map(|d| format!("{}={}/{}", d.request, d.pool, d.device));
        devices.collect::<Vec<_>>().join(" ")
    };
    results.iter().map(claim).collect::<Vec<_>>().join("; ")
}
