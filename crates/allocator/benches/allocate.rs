//! The large problems that upstream's allocator was measured with, and changes of the model.

use std::hint::black_box;

use allot_allocator::problem::Problem;
use allot_allocator::{Allocator, Claims, Cluster, Features, Limits, Node, Outcome, SelectorCache};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use k8s_openapi::api::resource::v1::{AllocationResult, DeviceClass, ResourceClaim, ResourceSlice};
use serde_json::{Value, json};

/// The program's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const DRIVER: &str = "gpu.example.com";

fn slice(node: usize, devices: usize) -> ResourceSlice {
    let device = |index: usize| {
        json!({
            "name": format!("gpu-{index}"),
            "attributes": {
                "model": {"string": if index % 2 == 1 { "h100" } else { "a100" }},
                "numa": {"int": index % 2},
                "index": {"int": index},
                "uuid": {"string": format!("gpu-{node}-{index}")},
                "driverVersion": {"version": "1.0.0"},
                "resource.kubernetes.io/pcieRoot": {"string": format!("pci0000:{:02x}", index % 4)},
            },
            "capacity": {"memory": {"value": "80Gi"}},
        })
    };
    let spec = json!({
        "driver": DRIVER,
        "nodeName": format!("n{node}"),
        "pool": {"name": format!("n{node}"), "generation": 1, "resourceSliceCount": 1},
        "devices": (0..devices).map(device).collect::<Vec<_>>(),
    });
    serde_json::from_value(json!({"metadata": {"name": format!("s-{node}")}, "spec": spec}))
        .unwrap()
}

fn claim(requests: Value, constraints: Value) -> ResourceClaim {
    serde_json::from_value(json!({
        "metadata": {"name": "c", "namespace": "default", "uid": "u"},
        "spec": {"devices": {"requests": requests, "constraints": constraints}},
    }))
    .unwrap()
}

fn request(name: &str, count: usize, selectors: &[&str]) -> Value {
    let selectors: Vec<_> = selectors
        .iter()
        .map(|s| json!({"cel": {"expression": s}}))
        .collect();
    json!({"name": name, "exactly": {
        "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count, "selectors": selectors,
    }})
}

const SELECTORS: [&str; 2] = [
    "device.attributes[\"gpu.example.com\"].model == \"h100\" && device.attributes[\"gpu.example.com\"].numa == 1",
    "device.capacity[\"gpu.example.com\"].memory.compareTo(quantity(\"40Gi\")) >= 0",
];

fn cluster(nodes: usize, devices: usize) -> Cluster {
    let mut cluster = Cluster::new(Features::default());
    for node in 0..nodes {
        cluster.apply(&slice(node, devices));
    }
    cluster
}

fn prepare(claim: &ResourceClaim) -> Claims {
    let class: DeviceClass = serde_json::from_value(json!({
        "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == {DRIVER:?}")}}]},
    }))
    .unwrap();
    Claims::prepare(
        &Features::default(),
        &SelectorCache::new(),
        &vec![class],
        [claim],
    )
}

/// Time for one node, over all nodes in turn, with the result in the form of the API. Preparing the claims (compiling
/// selectors among it) is not counted, nor is building the model.
fn per_node(
    criterion: &mut Criterion,
    name: &str,
    cluster: &Cluster,
    nodes: usize,
    claim: &ResourceClaim,
) {
    let claims = prepare(claim);
    let nodes: Vec<Node> = (0..nodes)
        .map(|n| Node::new(&format!("n{n}"), [("zone", "z1")]))
        .collect();
    // With answers of equal nodes, and with a search on every node.
    let both = [
        (name.to_owned(), Allocator::new()),
        (format!("{name}/anew"), Allocator::new().without_memory()),
    ];
    for (name, mut allocator) in both {
        let mut next = 0;
        criterion.bench_function(&name, |bencher| {
            bencher.iter(|| {
                next = (next + 1) % nodes.len();
                let outcome =
                    allocator.allocate(cluster, &nodes[next], &claims, &Limits::default());
                match outcome {
                    Outcome::Allocated(found) => {
                        black_box(found.results(&claims, &mut String::new).ok())
                    }
                    Outcome::DoesNotFit => None::<Vec<AllocationResult>>,
                    other => panic!("{other:?}"),
                }
            });
        });
    }
}

fn allocate(criterion: &mut Criterion) {
    let wide = cluster(500, 10);
    let none = || json!([]);
    let matching = || json!([{"matchAttribute": "resource.kubernetes.io/pcieRoot"}]);
    let one = claim(json!([request("a", 1, &[])]), none());
    per_node(criterion, "500x10-one", &wide, 500, &one);
    per_node(
        criterion,
        "500x10-selectors",
        &wide,
        500,
        &claim(json!([request("a", 1, &SELECTORS)]), none()),
    );
    let problem = full();
    per_node(criterion, "500x10-full", &problem.cluster(), 500, &one);
    let two = claim(
        json!([request("a", 1, &[]), request("b", 1, &[])]),
        matching(),
    );
    per_node(criterion, "500x10-match", &wide, 500, &two);
    let four = claim(json!([request("a", 4, &SELECTORS)]), none());
    per_node(criterion, "100x100-four", &cluster(100, 100), 100, &four);
    for (devices, count) in [(12, 13), (20, 21), (31, 32)] {
        let claim = claim(json!([request("a", count, &[])]), none());
        per_node(
            criterion,
            &format!("nofit-{count}-of-{devices}"),
            &cluster(1, devices),
            1,
            &claim,
        );
    }
    let sixteen = cluster(1, 16);
    per_node(
        criterion,
        "nofit-match-5-of-4-per-root",
        &sixteen,
        1,
        &claim(json!([request("a", 5, &[])]), matching()),
    );
    let distinct = json!([{"distinctAttribute": "resource.kubernetes.io/pcieRoot"}]);
    per_node(
        criterion,
        "nofit-distinct-5-roots",
        &sixteen,
        1,
        &claim(json!([request("a", 5, &[])]), distinct),
    );
}

/// 500 nodes with 10 devices each, one of which is free.
fn full() -> Problem {
    let used = (0..500).flat_map(|node| (0..10).map(move |device| (node, device)));
    let used = used.filter(|at| *at != (499, 9)).map(|(node, device)| {
        json!({"driver": DRIVER, "pool": format!("n{node}"), "device": format!("gpu-{device}")})
    });
    let used = used.collect::<Vec<_>>();
    let mut problem: Problem = serde_json::from_value(json!({"allocatedDevices": used})).unwrap();
    problem.resource_slices = (0..500).map(|node| slice(node, 10)).collect();
    problem
}

fn model(criterion: &mut Criterion) {
    let mut big = cluster(5000, 10);
    let slices: Vec<_> = (0..5000).map(|node| slice(node, 10)).collect();
    let mut next = 0;
    // As from a watch: the new slice was just decoded, and the one in the model is not in the CPU cache. Every device
    // differs from the model.
    let mut arrived = || {
        next += 7;
        let mut slice = slices[next % slices.len()].clone();
        for device in slice.spec.devices.iter_mut().flatten() {
            let attributes = device.attributes.get_or_insert_default();
            let changed = attributes.entry("index".to_owned()).or_default();
            changed.int = Some(next as i64);
        }
        slice
    };
    criterion.bench_function("5000x10-change-a-slice", |bencher| {
        let change = |slice| {
            big.apply(&slice);
            slice
        };
        bencher.iter_batched(&mut arrived, change, BatchSize::PerIteration);
    });
    criterion.bench_function("5000x10-snapshot-and-change-a-slice", |bencher| {
        let change = |slice| {
            let snapshot = big.clone();
            big.apply(&slice);
            (snapshot, slice)
        };
        bencher.iter_batched(&mut arrived, change, BatchSize::PerIteration);
    });
    criterion.bench_function("5000x10-snapshot", |bencher| bencher.iter(|| big.clone()));
    one_pool(criterion, slices);
}

/// All slices in one pool: the cost of a change, and of a change together with the next use of the pool.
fn one_pool(criterion: &mut Criterion, mut slices: Vec<ResourceSlice>) {
    let count = slices.len() as i64;
    for slice in &mut slices {
        slice.spec.pool.name = "all".to_owned();
        slice.spec.pool.resource_slice_count = count;
    }
    let mut cluster = Cluster::new(Features::default());
    slices.iter().for_each(|slice| cluster.apply(slice));
    let claims = prepare(&claim(json!([request("a", 1, &[])]), json!([])));
    let node = Node::new("n1", [("zone", "z1")]);
    for (name, look) in [("change-a-slice", false), ("change-and-look", true)] {
        let mut next = 0;
        let mut arrived = || {
            next = (next + 7) % slices.len();
            slices[next].clone()
        };
        let mut change = |slice| {
            cluster.apply(&slice);
            if look {
                let mut allocator = Allocator::new();
                let found = allocator.allocate(&cluster, &node, &claims, &Limits::default());
                black_box(matches!(found, Outcome::Allocated(_)));
            }
            slice
        };
        criterion.bench_function(&format!("one-pool-of-5000/{name}"), |bencher| {
            bencher.iter_batched(&mut arrived, &mut change, BatchSize::PerIteration);
        });
    }
}

criterion_group!(benches, allocate, model);
criterion_main!(benches);
