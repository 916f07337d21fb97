//! Law: an attempt that uses what earlier ones left ends like one that asks every node again.

use std::sync::Arc;
use std::time::Duration;

use allot_allocator::{Cluster, Features};
use proptest::prelude::*;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

use super::*;
use crate::cache::Cache;
use crate::config::Profile;
use crate::device_allocator::DeviceAllocator;
use crate::device_allocator::classes::Classes;
use crate::dra::DraContext;
use crate::dra::claims::Claims;
use crate::pod::PodInfo;
use crate::sources::Sources;

/// Names of nodes and of pods: few, so that they come again.
const NODES: usize = 6;
const PODS: usize = 12;

fn node(at: usize, variant: usize) -> Value {
    let effects = ["NoSchedule", "PreferNoSchedule"];
    let taints = match variant % 3 {
        0 => json!([]),
        other => json!([{"key": "k", "value": "v", "effect": effects[other - 1]}]),
    };
    json!({
        "metadata": {"name": format!("n{at}"), "labels": {"zone": format!("z{}", variant % 2)}},
        "spec": {"taints": taints, "unschedulable": variant == 7},
        "status": {"allocatable": {
            "cpu": format!("{}", 2 + variant % 4), "memory": "8Gi", "pods": "4", "x.example/gpu": "2",
        }},
    })
}

/// Pods that differ in what the signature is about: of some kinds there are many.
fn pod(at: usize, kind: usize, node: Option<usize>) -> Arc<PodInfo> {
    let mut spec =
        json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]});
    let expression = json!([{"key": "zone", "operator": "In", "values": ["z1"]}]);
    match kind {
        1 => spec["containers"][0]["resources"]["requests"] = json!({"cpu": "1", "memory": "1Gi"}),
        2 => spec["tolerations"] = json!([{"operator": "Exists"}]),
        3 => spec["nodeSelector"] = json!({"zone": "z1"}),
        4 => {
            spec["affinity"] = json!({"nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution":
                    [{"weight": 5, "preference": {"matchExpressions": expression}}],
            }});
        }
        5 => spec["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 80}]),
        6 => spec["containers"][0]["resources"]["requests"] = json!({"x.example/gpu": "1"}),
        7 => spec["containers"] = json!([{"name": "c"}]),
        8 => {
            spec["affinity"] = json!({"podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution":
                    [{"topologyKey": "zone", "labelSelector": {"matchLabels": {"kind": "8"}}}],
            }});
        }
        9 => spec["containers"][0]["resources"]["requests"] = json!({"cpu": "250m"}),
        _ => {}
    }
    if let Some(node) = node {
        spec["nodeName"] = json!(format!("n{node}"));
    }
    let name = format!("p{at}");
    let metadata =
        json!({"name": name, "namespace": "ns", "uid": name, "labels": {"kind": kind.to_string()}});
    let pod = json!({"metadata": metadata, "spec": spec});
    Arc::new(PodInfo::observed(
        serde_json::from_value(pod).expect("a pod"),
    ))
}

#[derive(Debug, Clone)]
enum Step {
    SetNode(usize, usize),
    RemoveNode(usize),
    SetPod(usize, usize, usize),
    RemovePod(usize),
    Attempt(usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (0..NODES, 0..8usize).prop_map(|(at, variant)| Step::SetNode(at, variant)),
        1 => (0..NODES).prop_map(Step::RemoveNode),
        2 => (0..PODS, 0..10usize, 0..NODES).prop_map(|(at, kind, on)| Step::SetPod(at, kind, on)),
        1 => (0..PODS).prop_map(Step::RemovePod),
        5 => (0..10usize, 0..NODES).prop_map(|(kind, start)| Step::Attempt(kind, start)),
    ]
}

/// The outcome of an attempt, with or without what others left.
fn outcome(cache: &Cache, kind: usize, start: usize, memo: Option<&NodeMemo>) -> String {
    let pod = pod(99, kind, None);
    let (profile, claims) = (
        Profile::default(),
        Claims::new(Cluster::new(Features::default())),
    );
    let (classes, pods) = (Classes::default(), FxHashMap::default());
    let allocator = DeviceAllocator::new(Features::default(), Sources::replayable());
    let dra = DraContext {
        claims: &claims,
        pods: &pods,
        classes: &classes,
        allocator: &allocator,
        binding_timeout: Duration::ZERO,
        binding_conditions: false,
        extended_resources: false,
        node_allocatable: None,
        prioritized_list: false,
        claim_plugin: None,
        skip_alternatives: 0,
        now: jiff::Timestamp::UNIX_EPOCH,
    };
    let sources = Sources::replayable();
    let attempt = Attempt::prepare(&pod, cache.snapshot(), &profile, dra, None, &sources);
    match (attempt, memo) {
        (Ok(attempt), Some(memo)) => {
            format!(
                "{:?}",
                attempt.with_memo(memo).place(start, &|_| Vec::new())
            )
        }
        (Ok(attempt), None) => format!("{:?}", attempt.place(start, &|_| Vec::new())),
        (Err(rejection), _) => format!("{rejection:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_is_remembered_is_what_would_be_found(steps in prop::collection::vec(step(), 1..60)) {
        let (mut cache, memo) = (Cache::default(), NodeMemo::default());
        for step in steps {
            match step {
                Step::SetNode(at, variant) => {
                    let node = serde_json::from_value(node(at, variant)).expect("a node");
                    cache.set_node(Arc::new(node));
                }
                Step::RemoveNode(at) => cache.remove_node(&format!("n{at}")),
                Step::SetPod(at, kind, on) => cache.set_pod(pod(at, kind, Some(on))),
                Step::RemovePod(at) => cache.remove_pod(&format!("p{at}")),
                Step::Attempt(kind, start) => {
                    let found = outcome(&cache, kind, start, None);
                    prop_assert_eq!(outcome(&cache, kind, start, Some(&memo)), found);
                }
            }
        }
    }
}

#[test]
fn so_many_signatures_are_remembered_and_no_more() {
    let (mut cache, memo) = (Cache::default(), NodeMemo::default());
    let node = serde_json::from_value(node(0, 0)).expect("a node");
    cache.set_node(Arc::new(node));
    for _ in 0..2 {
        for kind in [0, 1, 2, 3, 4, 5, 6, 7, 9] {
            outcome(&cache, kind, 0, Some(&memo));
        }
    }
    let last = memo.0.lock();
    assert_eq!(last.len(), SIGNATURES);
    assert!(
        last.iter().all(|signed| signed.nodes.is_empty()),
        "each came after eight others"
    );
    drop(last);
    for _ in 0..2 {
        outcome(&cache, 0, 0, Some(&memo));
    }
    let last = memo.0.lock();
    assert_eq!(last[0].nodes.len(), 1);
    let of_node = cache.snapshot().nodes[0].generation();
    assert_eq!(last[0].nodes[0].generation, of_node);
}
