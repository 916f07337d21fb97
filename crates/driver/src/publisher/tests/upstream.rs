//! The plans of upstream's controller of v0.36 for random pools, from random states of the server: a sample of 6000
//! cases. Not included are a single slice under another name than upstream's, and devices with several taints (upstream
//! loses the times of all but the last): see docs/DIVERGENCES.md.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::*;

#[derive(Deserialize)]
struct Case {
    /// Features that the server does not have: it drops their fields.
    off: Vec<String>,
    existing: Vec<ResourceSlice>,
    pool: Option<Wanted>,
    created: usize,
    updated: usize,
    deleted: usize,
    errors: BTreeSet<String>,
    result: Vec<ResourceSliceSpec>,
}

#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[derive(Default)]
struct Wanted {
    node_selector: Option<NodeSelector>,
    all_nodes: bool,
    generation: i64,
    slices: Vec<WantedSlice>,
}

#[derive(Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[derive(Default)]
struct WantedSlice {
    devices: Vec<Device>,
    shared_counters: Vec<CounterSet>,
    per_device: bool,
}

impl From<Wanted> for Pool {
    fn from(wanted: Wanted) -> Self {
        let slice = |slice: WantedSlice| Slice {
            devices: slice.devices,
            shared_counters: slice.shared_counters,
            per_device_node_selection: slice.per_device,
        };
        Self {
            node_selector: wanted.node_selector,
            all_nodes: wanted.all_nodes,
            generation: wanted.generation,
            slices: wanted.slices.into_iter().map(slice).collect(),
        }
    }
}

/// The stored form of a slice.
fn store(spec: &mut ResourceSliceSpec, off: &[String]) {
    let off = |feature: &str| off.iter().any(|name| name == feature);
    for device in spec.devices.iter_mut().flatten() {
        if off("DRADeviceTaints") {
            device.taints = None;
        }
        if off("DRAPartitionableDevices") {
            device.consumes_counters = None;
        }
        if off("DRADeviceBindingConditions") {
            device.binding_conditions = None;
            device.binding_failure_conditions = None;
            device.binds_to_node = None;
        }
        if off("DRAConsumableCapacity") {
            device.allow_multiple_allocations = None;
        }
        for taint in device.taints.iter_mut().flatten() {
            let now = Timestamp::from_second(5000).unwrap();
            taint.time_added.get_or_insert(Time(now));
        }
    }
    if off("DRAPartitionableDevices") {
        spec.per_device_node_selection = None;
        spec.shared_counters = None;
    }
}

fn check(number: usize, line: &str) {
    let case: Case = serde_json::from_str(line).unwrap();
    let pool: Option<Pool> = case.pool.map(Pool::from);
    let resources = Resources {
        pools: pool
            .clone()
            .map(|pool| ("pool".to_owned(), pool))
            .into_iter()
            .collect(),
    };
    let scope = on_node("node", "node-uid");
    let target = Target {
        driver: "driver",
        scope: &scope,
        pool: "pool",
    };
    let (mut slices, mut stored) = (case.existing, Stored::new());
    let mut errors = BTreeSet::new();
    let mut writes = Vec::new();
    // The second time nothing is left to do.
    for round in 0..2 {
        if let Err(error) = validate::resources(&resources) {
            errors.insert(error.to_string());
            writes.push((0, 0, 0));
            continue;
        }
        let plan = Plan::new(&target, pool.as_ref(), slices.iter().collect(), &stored);
        writes.push((plan.create.len(), plan.update.len(), plan.delete.len()));
        slices.retain(|slice| {
            plan.delete
                .iter()
                .all(|gone| gone.metadata.name != slice.metadata.name)
        });
        for (index, sent) in plan.update.iter().chain(&plan.create) {
            let mut got = sent.clone();
            got.metadata
                .uid
                .get_or_insert_with(|| format!("uid-{round}-{index}"));
            got.metadata
                .name
                .get_or_insert_with(|| format!("{index:05x}-new"));
            store(&mut got.spec, &case.off);
            if let Some(features) = plan::dropped_features(&sent.spec, &got.spec) {
                let error = BackgroundError::DroppedFields {
                    pool: "pool".into(),
                    slice: *index,
                    features,
                };
                errors.insert(error.to_string());
            }
            plan::remember(&mut stored, sent, &got);
            slices.retain(|slice| slice.metadata.name != got.metadata.name);
            slices.push(got);
        }
    }
    let canonical = |specs: Vec<ResourceSliceSpec>| {
        let mut specs: Vec<String> = specs
            .into_iter()
            .map(|spec| serde_json::to_value(spec).unwrap())
            .map(|spec: Value| spec.to_string())
            .collect();
        specs.sort();
        specs
    };
    let found = slices.into_iter().map(|slice| slice.spec).collect();
    let at = format!("line {}", number + 1);
    assert_eq!(errors, case.errors, "{at}");
    assert_eq!(canonical(found), canonical(case.result), "{at}");
    let expected = (case.created, case.updated, case.deleted);
    assert_eq!(writes, [expected, (0, 0, 0)], "{at}");
}

#[test]
fn pools_become_what_upstream_makes_of_them() {
    for (number, line) in include_str!("upstream.jsonl").lines().enumerate() {
        check(number, line);
    }
}

#[test]
fn every_taint_keeps_its_time() {
    let device = |times: [Option<&str>; 2]| -> Device {
        let taint = |(key, time): (&str, Option<&str>)| serde_json::json!({"key": key, "effect": "NoSchedule", "timeAdded": time});
        let taints: Vec<Value> = ["a", "b"].into_iter().zip(times).map(taint).collect();
        serde_json::from_value(serde_json::json!({"name": "gpu-0", "taints": taints})).unwrap()
    };
    let spec = |device: Device| ResourceSliceSpec {
        devices: Some(vec![device]),
        ..ResourceSliceSpec::default()
    };
    let known = device([Some("2026-01-01T00:00:00Z"), Some("2026-02-01T00:00:00Z")]);
    let existing = ResourceSlice {
        spec: spec(known.clone()),
        ..ResourceSlice::default()
    };
    let mut wanted = spec(device([None, None]));
    plan::keep_times(&mut wanted, Some(&existing));
    assert_eq!(wanted, spec(known));
}
