//! Decisions of the scheduler and what they rest on, without an API server.

use std::hint::black_box;

use allot_allocator::{Allocator, Claims, Cluster, Features, Limits, Node, Outcome, SelectorCache};
use allot_apimachinery::Quantity;
use allot_cel::device::{Attribute, Device, compile};
use allot_reflector::{Readable as _, everything};
use allot_scheduler::Config;
use allot_simulate::{Options, Simulation, Workload, trace};
use anyhow::ensure;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use serde_json::{Value, json};

use super::{Operation, Path};
use crate::cmd::bench::api::objects::Kind;

pub(super) const PATHS: &[Path] = &[
    Path::new("compile a selector", 100, compile_selector),
    Path::new("evaluate a selector", 1000, evaluate_selector),
    Path::new("allocate one device", 500, allocate_one),
    Path::new("allocate four devices", 200, allocate_four),
    Path::new("refuse an allocation", 500, allocate_none),
    Path::new("schedule a pod", 50, schedule),
    Path::new("read a pod from a watch", 200, read_pod),
    Path::new("compare quantities", 1000, compare_quantities),
];

const DRIVER: &str = "gpu.example.com";
const SELECTOR: &str = "device.driver == \"gpu.example.com\" \
    && device.attributes[\"gpu.example.com\"].model == \"h100\" \
    && device.capacity[\"gpu.example.com\"].memory.compareTo(quantity(\"40Gi\")) >= 0";

/// The same operation again and again.
fn repeat(mut operation: impl FnMut() -> anyhow::Result<()> + 'static) -> Operation {
    Box::new(move |times| (0..times).try_for_each(|_| operation()))
}

fn compile_selector(_: usize) -> anyhow::Result<Operation> {
    Ok(repeat(|| {
        black_box(compile(black_box(SELECTOR), &Default::default())?);
        Ok(())
    }))
}

fn evaluate_selector(_: usize) -> anyhow::Result<Operation> {
    let selector = compile(SELECTOR, &Default::default())?;
    let device = Device::builder(DRIVER)
        .attribute("model", Attribute::String("h100".into()))
        .capacity("memory", "80Gi".parse()?)
        .build();
    Ok(repeat(move || {
        ensure!(selector.matches(black_box(&device)) == Ok(true), "no match");
        Ok(())
    }))
}

fn slice(node: usize) -> Value {
    let devices: Vec<Value> = (0..8)
        .map(|number| {
            json!({
                "name": format!("gpu-{number}"),
                "attributes": {
                    "model": {"string": if number % 2 == 1 { "h100" } else { "a100" }},
                    "resource.kubernetes.io/pcieRoot": {"string": format!("pci0000:{:02x}", number % 4)},
                },
                "capacity": {"memory": {"value": "80Gi"}},
            })
        })
        .collect();
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": format!("slice-{node}")},
        "spec": {
            "driver": DRIVER,
            "nodeName": format!("node-{node}"),
            "pool": {"name": format!("node-{node}"), "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    })
}

fn class() -> Value {
    let selector = format!("device.driver == {DRIVER:?}");
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": selector}}]},
    })
}

/// Searches devices for a claim on one of 50 nodes after the other, without remembered answers.
fn search(count: usize, constraints: Value, fits: bool) -> anyhow::Result<Operation> {
    const NODES: usize = 50;
    let mut cluster = Cluster::new(Features::default());
    for number in 0..NODES {
        let slice: ResourceSlice = serde_json::from_value(slice(number))?;
        cluster.apply(&slice);
    }
    let class: DeviceClass = serde_json::from_value(class())?;
    let selectors = if count == 1 {
        json!([{"cel": {"expression": SELECTOR}}])
    } else {
        json!([])
    };
    let claim: ResourceClaim = serde_json::from_value(json!({
        "metadata": {"name": "claim", "namespace": "default", "uid": "uid"},
        "spec": {"devices": {
            "requests": [{"name": "gpu", "exactly": {
                "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count, "selectors": selectors,
            }}],
            "constraints": constraints,
        }},
    }))?;
    let features = Features::default();
    let claims = Claims::prepare(&features, &SelectorCache::new(), &vec![class], [&claim]);
    let nodes: Vec<Node> = (0..NODES)
        .map(|number| Node::new(&format!("node-{number}"), [("zone", "z1")]))
        .collect();
    let mut allocator = Allocator::new().without_memory();
    let mut next = 0;
    Ok(repeat(move || {
        next = (next + 1) % NODES;
        let outcome = allocator.allocate(&cluster, &nodes[next], &claims, &Limits::default());
        let found = match outcome {
            Outcome::Allocated(found) => {
                let results = found.results(&claims, &mut String::new);
                black_box(results.map_err(anyhow::Error::msg)?);
                true
            }
            Outcome::DoesNotFit => false,
            other => anyhow::bail!("{other:?}"),
        };
        ensure!(found == fits, "found: {found}");
        Ok(())
    }))
}

fn allocate_one(_: usize) -> anyhow::Result<Operation> {
    search(1, json!([]), true)
}

fn allocate_four(_: usize) -> anyhow::Result<Operation> {
    search(4, json!([]), true)
}

/// Two devices have each root: three cannot share one.
fn allocate_none(_: usize) -> anyhow::Result<Operation> {
    search(
        3,
        json!([{"matchAttribute": "resource.kubernetes.io/pcieRoot"}]),
        false,
    )
}

/// Pods with claims, from their arrival to their binding, in the scheduler's core.
fn schedule(count: usize) -> anyhow::Result<Operation> {
    let nodes = count.div_ceil(8).max(2);
    Ok(Box::new(move |times| {
        let mut objects = vec![class()];
        for number in 0..nodes {
            let name = format!("node-{number}");
            objects.push(json!({
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                "status": {"allocatable": {"cpu": "64", "memory": "512Gi", "pods": "250"}},
            }));
            objects.push(slice(number));
        }
        let config = Config::default();
        let mut workload = Workload::default();
        let rows = format!("at,duration,count,name,class,cpu\n0,1000,{times},pod,gpu,100m\n");
        let (features, start) = (config.features.clone(), Timestamp::UNIX_EPOCH);
        trace::add(&mut workload, &rows, "default", &features, start)?;
        let mut simulation = Simulation::new(config, Options::default(), objects)?;
        simulation.add_workload(workload)?;
        simulation.run()?;
        let placed = simulation.report().summary.placed;
        ensure!(placed == times, "{placed} of {times} pods were placed");
        Ok(())
    }))
}

fn read_pod(_: usize) -> anyhow::Result<Operation> {
    let text = Kind::Pods.object(1).to_string();
    Ok(repeat(move || {
        black_box(Pod::read(black_box(&text), everything)?);
        Ok(())
    }))
}

fn compare_quantities(_: usize) -> anyhow::Result<Operation> {
    Ok(repeat(|| {
        let (one, other): (Quantity, Quantity) = ("1500M".parse()?, "1.5G".parse()?);
        ensure!(black_box(one) == black_box(other), "not equal");
        Ok(())
    }))
}
