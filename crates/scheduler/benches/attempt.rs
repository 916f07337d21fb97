//! What an attempt costs in a cluster of 5 000 nodes and 50 000 pods, and what preemption costs on full nodes.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use allot_allocator::{Cluster, Features};
use allot_scheduler::attempt::{Attempt, FitError};
use allot_scheduler::cache::Cache;
use allot_scheduler::config::Profile;
use allot_scheduler::device_allocator::DeviceAllocator;
use allot_scheduler::device_allocator::classes::Classes;
use allot_scheduler::dra::DraContext;
use allot_scheduler::dra::claims::Claims;
use allot_scheduler::pod::PodInfo;
use allot_scheduler::preemption::{self, Outcome, Rules};
use allot_scheduler::sources::Sources;
use criterion::{Criterion, criterion_group, criterion_main};
use jiff::Timestamp;
use rustc_hash::FxHashMap;
use serde_json::{Value, json};

/// The program's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const NODES: usize = 5000;
const PODS_PER_NODE: usize = 10;
/// Pods of one ReplicaSet.
const REPLICAS: usize = 50;

fn node(at: usize) -> Value {
    let labels = json!({
        "kubernetes.io/hostname": format!("node-{at}"),
        "topology.kubernetes.io/zone": format!("zone-{}", at % 3),
    });
    json!({
        "metadata": {"name": format!("node-{at}"), "labels": labels},
        "status": {"allocatable": {"cpu": "32", "memory": "128Gi", "pods": "110"}},
    })
}

fn pod(name: &str, set: usize, spec: Value) -> Value {
    let mut pod = json!({
        "metadata": {
            "name": name,
            "namespace": format!("ns-{}", set % 20),
            "uid": format!("00000000-0000-0000-0000-{name}"),
            "labels": {"app": format!("app-{set}"), "pod-template-hash": "5d78c9869d"},
            "ownerReferences": [{
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": format!("app-{set}"),
                "uid": format!("11111111-1111-1111-1111-{set:012}"),
                "controller": true,
            }],
        },
        "spec": {"containers": [{
            "name": "main",
            "image": "registry.example/app:1",
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        }]},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    pod
}

fn parse(pod: Value) -> PodInfo {
    PodInfo::observed(serde_json::from_value(pod).expect("a pod"))
}

/// Nodes with pods, all with the same addition to what they want.
fn cluster(nodes: usize, pods_per_node: usize, addition: impl Fn(usize) -> Value) -> Cache {
    let mut cache = Cache::default();
    for at in 0..nodes {
        cache.set_node(Arc::new(serde_json::from_value(node(at)).expect("a node")));
    }
    for at in 0..nodes * pods_per_node {
        let mut spec = addition(at);
        spec["nodeName"] = json!(format!("node-{}", at % nodes));
        cache.set_pod(Arc::new(parse(pod(
            &format!("{at:012}"),
            at / REPLICAS,
            spec,
        ))));
    }
    cache
}

/// What an attempt reads beside nodes.
struct Devices {
    claims: Claims,
    classes: Classes,
    allocator: DeviceAllocator,
    pods: FxHashMap<allot_scheduler::pod::Key, Arc<PodInfo>>,
}

impl Devices {
    fn new() -> Self {
        Self {
            claims: Claims::new(Cluster::new(Features::default())),
            classes: Classes::default(),
            allocator: DeviceAllocator::new(Features::default(), Sources::System),
            pods: FxHashMap::default(),
        }
    }

    fn context(&self) -> DraContext<'_> {
        DraContext {
            claims: &self.claims,
            pods: &self.pods,
            classes: &self.classes,
            allocator: &self.allocator,
            binding_timeout: Duration::from_secs(600),
            binding_conditions: false,
            extended_resources: false,
            node_allocatable: None,
            prioritized_list: false,
            claim_plugin: None,
            skip_alternatives: 0,
            now: Timestamp::UNIX_EPOCH,
        }
    }
}

fn places(c: &mut Criterion) {
    let (devices, profile) = (Devices::new(), Profile::default());
    let mut measure = |name: &str, cache: &Cache, spec: Value| {
        let pod = Arc::new(parse(pod("999999999999", 7, spec)));
        c.bench_function(&format!("5000x50000/{name}"), |bencher| {
            bencher.iter(|| {
                let attempt = Attempt::prepare(
                    &pod,
                    cache.snapshot(),
                    &profile,
                    devices.context(),
                    None,
                    &Sources::System,
                )
                .expect("prepared");
                let placement = attempt.place(0, &|_| Vec::new());
                black_box(placement.expect("a node").node)
            });
        });
    };
    let plain = cluster(NODES, PODS_PER_NODE, |_| json!({}));
    measure("replica", &plain, json!({}));
    let spread = |when: &str| {
        json!({"topologySpreadConstraints": [{
            "maxSkew": 5,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": when,
            "labelSelector": {"matchLabels": {"app": "app-7"}},
        }]})
    };
    measure("hosts-must-differ", &plain, spread("DoNotSchedule"));
    drop(plain);
    // One pod on every node wants something of other pods, as an agent of some operator.
    let wishes = |preference: &str| {
        let term = json!({
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": {"app": "something"}},
        });
        let terms = match preference {
            "requiredDuringSchedulingIgnoredDuringExecution" => json!([term]),
            _ => json!([{"weight": 1, "podAffinityTerm": term}]),
        };
        json!({"affinity": {"podAntiAffinity": {preference: terms}}})
    };
    for (name, preference) in [
        (
            "replica-beside-required",
            "requiredDuringSchedulingIgnoredDuringExecution",
        ),
        (
            "replica-beside-preferred",
            "preferredDuringSchedulingIgnoredDuringExecution",
        ),
    ] {
        let beside = cluster(NODES, PODS_PER_NODE, |at| match at < NODES {
            true => wishes(preference),
            false => json!({}),
        });
        measure(name, &beside, json!({}));
    }
}

/// An important pod that fits nowhere: every node has a hundred others, of which a few have to go.
fn preempts(c: &mut Criterion) {
    let (devices, profile) = (Devices::new(), Profile::default());
    let cpu = |amount: &str, priority: i32| {
        let requests = json!({"cpu": amount});
        let container = json!({"name": "main", "resources": {"requests": requests}});
        json!({"containers": [container], "priority": priority})
    };
    let full = cluster(500, 100, |_| cpu("310m", 0));
    let pod = Arc::new(parse(pod("999999999999", 7, cpu("4", 10))));
    c.bench_function("500x50000/preempt", |bencher| {
        let attempt = Attempt::prepare(
            &pod,
            full.snapshot(),
            &profile,
            devices.context(),
            None,
            &Sources::System,
        )
        .expect("prepared");
        let unplaced: FitError = attempt
            .place(0, &|_| Vec::new())
            .expect_err("every node is full");
        let rules = Rules {
            budgets: &[],
            nominated: &|_| Vec::new(),
            spares: &|_| false,
        };
        bencher.iter(|| {
            let outcome = preemption::preempt(&attempt, &unplaced, 0, &rules);
            let Outcome::Preempt(victims) = outcome else {
                panic!("{outcome:?}");
            };
            black_box(victims.pods.len())
        });
    });
}

criterion_group!(benches, places, preempts);
criterion_main!(benches);
