use k8s_openapi::api::resource::v1 as api;
use serde_json::{Value, json};

use super::*;
use crate::{Features, Holder};

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("fixture")
}

fn free_devices_of(devices: Value, counters: Value, held: &[Value]) -> FreeDevices {
    let mut cluster = Cluster::new(Features {
        partitionable_devices: true,
        consumable_capacity: true,
        ..Features::default()
    });
    let slices = if counters.is_null() { 1 } else { 2 };
    let spec = |more: Value| {
        let mut spec = json!({
            "driver": "d", "nodeName": "n",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": slices},
        });
        for (field, value) in more.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        spec
    };
    let mut apply = |name: &str, more: Value| {
        let slice = json!({"metadata": {"name": name}, "spec": spec(more)});
        cluster.apply(&read::<api::ResourceSlice>(slice));
    };
    apply("devices", json!({"devices": devices}));
    if !counters.is_null() {
        apply("counters", json!({"sharedCounters": counters}));
    }
    for (number, result) in held.iter().enumerate() {
        let mut result = result.clone();
        for (field, value) in [("request", "r"), ("driver", "d"), ("pool", "p")] {
            result[field] = json!(value);
        }
        let holder = Holder {
            uid: format!("{number}").into(),
            ..Holder::default()
        };
        let allocation = json!({"devices": {"results": [result]}});
        cluster.claim_allocated(&holder, &read(allocation));
    }
    let none: [(&str, &str); 0] = [];
    cluster.free_devices(&Node::new("n", none))
}

#[track_caller]
fn check(free: &FreeDevices, expected: &[(u32, u32)]) {
    let units = free.units().iter().map(|unit| (unit.free, unit.largest));
    assert_eq!(units.collect::<Vec<_>>(), expected);
}

#[test]
fn a_device_is_free_or_not() {
    let devices = json!([{"name": "a"}, {"name": "b"}]);
    let free = free_devices_of(devices, Value::Null, &[json!({"device": "a"})]);
    check(&free, &[(0, 0), (1000, 1000)]);
    assert_eq!(
        (free.total(), free.free(), free.untouched()),
        (2000, 1000, 1)
    );
}

#[test]
fn of_a_shared_device_a_part_is_left() {
    let device = |name: &str| {
        json!({
            "name": name, "allowMultipleAllocations": true,
            "capacity": {"memory": {"value": "10Gi"}, "cores": {"value": "4"}},
        })
    };
    let taken =
        json!({"device": "a", "shareID": "s", "consumedCapacity": {"memory": "1Gi", "cores": "3"}});
    let free = free_devices_of(json!([device("a"), device("b")]), Value::Null, &[taken]);
    // The scarcest resource decides.
    check(&free, &[(250, 250), (1000, 1000)]);
    assert_eq!(free.broken(), 1);
}

#[test]
fn of_partitions_the_largest_that_fits_counts() {
    let part = |name: &str, slices: &[u32]| {
        let counters: Vec<(String, Value)> = slices
            .iter()
            .map(|slice| (format!("slice-{slice}"), json!({"value": "1"})))
            .collect();
        let counters: Value = counters.into_iter().collect();
        json!({"name": name, "consumesCounters": [{"counterSet": "gpu", "counters": counters}]})
    };
    let devices = json!([
        part("whole", &[0, 1, 2, 3]),
        part("left", &[0, 1]),
        part("right", &[2, 3]),
        part("one-0", &[0]),
        part("one-1", &[1]),
        part("one-2", &[2]),
        part("one-3", &[3]),
    ]);
    let total: Value = (0..4)
        .map(|slice| (format!("slice-{slice}"), json!({"value": "1"})))
        .collect();
    let counters = json!([{"name": "gpu", "counters": total}]);
    let free_devices = |held: &[Value]| free_devices_of(devices.clone(), counters.clone(), held);
    check(&free_devices(&[]), &[(1000, 1000)]);
    check(&free_devices(&[json!({"device": "one-0"})]), &[(750, 500)]);
    let apart = free_devices(&[json!({"device": "one-0"}), json!({"device": "one-3"})]);
    check(&apart, &[(500, 250)]);
    let together = free_devices(&[json!({"device": "one-0"}), json!({"device": "one-1"})]);
    check(&together, &[(500, 500)]);
    assert!(apart.wasted() > together.wasted());
}

#[test]
fn what_is_free_in_pieces_is_wasted_for_what_needs_more() {
    let devices = json!([{"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "d"}]);
    let free_devices = |held: usize| {
        let held: Vec<Value> = ["a", "b", "c", "d"][..held]
            .iter()
            .map(|device| json!({"device": device}))
            .collect();
        free_devices_of(devices.clone(), Value::Null, &held)
    };
    // The sizes up to four units; eight could never be had.
    assert_eq!(free_devices(0).fragmentation(), (0, 4000 * 6));
    // Four at once are not available.
    assert_eq!(free_devices(1).fragmentation(), (3000, 3000 * 6));
    // Nor two.
    assert_eq!(free_devices(3).fragmentation(), (2000, 1000 * 6));
    assert_eq!(free_devices(4).fragmentation(), (0, 0));
}
