//! Placement policies.

use allot_allocator::Policy;
use allot_scheduler::Config;
use allot_simulate::Options;
use serde_json::{Value, json};

use crate::fixtures::*;

fn config(policy: Policy) -> Config {
    let mut config = Config::default();
    config.profiles[0].dynamic_resources.placement = policy;
    config
}

fn placed(policy: Policy, cluster: &[Value], workload: &[Value]) -> Vec<String> {
    let report = simulate_with(
        config(policy),
        Options::default(),
        cluster.to_vec(),
        workload.to_vec(),
    );
    lines(&report)
}

fn waits() -> Value {
    Value::Null
}

#[test]
fn nodes_are_filled_or_spared() {
    let cluster = [
        node("a", "64"),
        slice("a", devices(4)),
        node("b", "64"),
        slice("b", devices(4)),
        class(),
        template("one", 1, waits()),
    ];
    let pods: Vec<Value> = (0..4)
        .map(|i| pod(&format!("p{i}"), "template:one", waits(), waits()))
        .collect();
    let nodes = |policy| -> Vec<String> {
        let lines = placed(policy, &cluster, &pods);
        let mut nodes: Vec<String> = lines
            .iter()
            .map(|l| l.split(' ').nth(1).expect("a node").to_owned())
            .collect();
        nodes.sort();
        nodes
    };
    for policy in [Policy::BestFit, Policy::LeastFragmentation] {
        let nodes = nodes(policy);
        assert!(
            nodes.iter().all(|node| *node == nodes[0]),
            "{policy:?}: {nodes:?}"
        );
    }
    assert_eq!(nodes(Policy::Spread), ["a", "a", "b", "b"]);
}

#[test]
fn a_shared_device_is_used_up_before_another_is_begun() {
    let shared = |name: &str| {
        json!({
            "name": name, "allowMultipleAllocations": true, "capacity": {"memory": {"value": "10Gi"}},
        })
    };
    let cluster = [
        node("a", "64"),
        slice("a", json!([shared("g0"), shared("g1")])),
        class(),
        template(
            "four",
            1,
            json!({"capacity": {"requests": {"memory": "4Gi"}}}),
        ),
        template(
            "six",
            1,
            json!({"capacity": {"requests": {"memory": "6Gi"}}}),
        ),
    ];
    let pods = [
        pod("p0", "template:four", waits(), waits()),
        pod("p1", "template:six", waits(), waits()),
        pod("p2", "template:six", waits(), waits()),
    ];
    let of = |policy| placed(policy, &cluster, &pods);
    let together = [
        "p0 a 0 - gpu/a/g0",
        "p1 a 0 - gpu/a/g0",
        "p2 a 0 - gpu/a/g1",
    ];
    assert_eq!(of(Policy::BestFit), together);
    assert_eq!(of(Policy::LeastFragmentation), together);
    assert_eq!(
        of(Policy::Spread)[..2],
        ["p0 a 0 - gpu/a/g0", "p1 a 0 - gpu/a/g1"]
    );
}

#[test]
fn a_partition_is_taken_where_it_blocks_the_least() {
    let part = |name: &str, size: u64, slices: std::ops::Range<u64>| {
        let counters: serde_json::Map<String, Value> = slices
            .map(|s| (format!("s{s}"), json!({"value": "1"})))
            .collect();
        json!({
            "name": name, "attributes": {"size": {"int": size}},
            "consumesCounters": [{"counterSet": "g", "counters": counters}],
        })
    };
    let total: serde_json::Map<String, Value> = (0..4)
        .map(|s| (format!("s{s}"), json!({"value": "1"})))
        .collect();
    // The left half blocks less at its right end, where it overlaps with a piece of three.
    let devices = json!([
        part("three", 3, 0..3),
        part("one-0", 1, 0..1),
        part("one-1", 1, 1..2),
        part("one-2", 1, 2..3),
        part("one-3", 1, 3..4),
    ]);
    let mut counters = slice("a", waits());
    counters["metadata"]["name"] = json!("counters");
    counters["spec"] = json!({
        "driver": "gpu", "nodeName": "a", "sharedCounters": [{"name": "g", "counters": total}],
        "pool": {"name": "a", "generation": 1, "resourceSliceCount": 2},
    });
    let mut parts = slice("a", devices);
    parts["spec"]["pool"]["resourceSliceCount"] = json!(2);
    let of_size = |size: u64| {
        let expression = format!("device.attributes['gpu'].size == {size}");
        json!({"selectors": [{"cel": {"expression": expression}}]})
    };
    let cluster = [
        node("a", "64"),
        counters,
        parts,
        class(),
        template("one", 1, of_size(1)),
        template("three", 1, of_size(3)),
    ];
    let pods = [
        pod("p0", "template:one", waits(), waits()),
        pod("p1", "template:three", waits(), waits()),
    ];
    assert_eq!(
        placed(Policy::FirstFit, &cluster, &pods),
        ["p0 a 0 - gpu/a/one-0", "p1 - - -"]
    );
    assert_eq!(
        placed(Policy::LeastFragmentation, &cluster, &pods),
        ["p0 a 0 - gpu/a/one-3", "p1 a 0 - gpu/a/three"]
    );
}

#[test]
fn pods_without_devices_leave_processors_beside_devices() {
    let mut cluster = vec![class(), template("one", 1, waits())];
    for name in ["a", "b", "c", "d"] {
        cluster.push(node(name, "8"));
        cluster.push(slice(name, devices(1)));
    }
    // Four small pods come first, which could all be on one node.
    let sized = |name: &str, claim: &str, cpu: &str| {
        let mut pod = pod(name, claim, waits(), waits());
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
        pod
    };
    let mut pods: Vec<Value> = (0..4).map(|i| sized(&format!("a{i}"), "", "2")).collect();
    pods.extend((0..3).map(|i| sized(&format!("b{i}"), "template:one", "8")));
    let waiting = |config: Config| {
        let options = Options::default();
        let report = simulate_with(config, options, cluster.clone(), pods.clone());
        report.summary.waiting
    };
    assert_eq!(waiting(config(Policy::FirstFit)), 3);
    assert_eq!(waiting(config(Policy::BestFit)), 0);
    assert_eq!(waiting(config(Policy::LeastFragmentation)), 0);
    // The configuration takes precedence.
    let mut stated = config(Policy::BestFit);
    stated.profiles[0].fit.is_stated = true;
    assert_eq!(waiting(stated), 3);
}
