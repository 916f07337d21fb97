//! Devices that two claims cannot both have, however they were allocated.

use allot_allocator::{Cluster, Features, Holder};
use serde_json::{Value, json};

use crate::make::{self, DRIVER};

/// Claims by name with their results, as `device`, `device/share` or `device/share=amount`; returns the conflicts.
fn check(slices: &[Value], claims: &[(&str, &str)], expected: &[&str]) {
    let mut cluster = Cluster::new(Features::ALL);
    for slice in slices {
        cluster.apply(&make::read(slice.clone()));
    }
    for (name, held) in claims {
        let results: Vec<Value> = held.split(' ').map(result).collect();
        let holder = Holder {
            name: (*name).into(),
            uid: (*name).into(),
            ..Holder::default()
        };
        let allocation = json!({"devices": {"results": results}});
        cluster.claim_allocated(&holder, &make::read(allocation));
    }
    let found = claims.iter().flat_map(|(name, _)| {
        let conflicts = cluster.conflicts(name, |_, _| true).into_iter();
        conflicts.map(move |conflict| format!("{name}: {}", conflict.describe("")))
    });
    assert_eq!(found.collect::<Vec<_>>(), expected, "{claims:?}");
}

fn result(text: &str) -> Value {
    let (device, share) = text.split_once('/').unwrap_or((text, ""));
    let (share, amount) = share.split_once('=').unwrap_or((share, ""));
    let mut result = json!({"request": "r", "driver": DRIVER, "pool": "p", "device": device});
    if let Some(device) = device.strip_prefix("admin:") {
        result["adminAccess"] = true.into();
        result["device"] = device.into();
    }
    if !share.is_empty() {
        result["shareID"] = share.into();
    }
    if !amount.is_empty() {
        result["consumedCapacity"] = json!({"memory": amount});
    }
    result
}

#[test]
fn a_device_is_for_one_claim() {
    let slice = [make::slice("p", make::plain(&["a", "b"]), json!({}))];
    check(&slice, &[("one", "a"), ("two", "b")], &[]);
    check(&slice, &[("one", "a"), ("two", "admin:a")], &[]);
    let both = [
        "one: device gpu.example.com/p/a is also allocated to two",
        "two: device gpu.example.com/p/a is also allocated to one",
    ];
    check(&slice, &[("one", "a"), ("two", "b a")], &both);
    // No slice has to show it.
    check(&[], &[("one", "a"), ("two", "a")], &both);
}

#[test]
fn shares_go_together_up_to_the_capacity() {
    let device = make::device(
        "a",
        json!({"allowMultipleAllocations": true, "capacity": {"memory": {"value": "4Gi"}}}),
    );
    let slice = [make::slice("p", vec![device], json!({}))];
    check(&slice, &[("one", "a/x=1Gi"), ("two", "a/y=3Gi")], &[]);
    let text = "device gpu.example.com/p/a is allocated beyond its capacity or counters";
    let both = [format!("one: {text}"), format!("two: {text}")];
    let both = both.each_ref().map(String::as_str);
    check(&slice, &[("one", "a/x=2Gi"), ("two", "a/y=3Gi")], &both);
    let mixed = [
        "one: device gpu.example.com/p/a is also allocated to two",
        "two: device gpu.example.com/p/a is also allocated to one",
    ];
    check(&slice, &[("one", "a/x=1Gi"), ("two", "a")], &mixed);
}

/// A pool whose two devices take so much of a counter that has four, in one generation.
fn partitions(name: &str, generation: u64, each: &str) -> [Value; 2] {
    let device = |name: &str| {
        let counters = json!([{"counterSet": "gpu", "counters": {"memory": {"value": each}}}]);
        make::device(name, json!({"consumesCounters": counters}))
    };
    let pool = json!({"name": "p", "generation": generation, "resourceSliceCount": 2});
    let counters = json!([{"name": "gpu", "counters": {"memory": {"value": "4"}}}]);
    let mut devices = make::slice("p", vec![device("a"), device("b")], json!({"pool": pool}));
    devices["metadata"]["name"] = format!("{name}-devices").into();
    let mut sets = make::slice(
        "p",
        vec![],
        json!({"pool": pool, "sharedCounters": counters}),
    );
    sets["metadata"]["name"] = format!("{name}-counters").into();
    [devices, sets]
}

#[test]
fn partitions_take_from_what_they_share() {
    let claims = [("one", "a"), ("two", "b")];
    check(&partitions("new", 2, "2"), &claims, &[]);
    let text = |name: &str, device: &str| {
        format!(
            "{name}: device gpu.example.com/p/{device} is allocated beyond its capacity or counters"
        )
    };
    let both = [text("one", "a"), text("two", "b")];
    let both = both.each_ref().map(String::as_str);
    check(&partitions("new", 2, "3"), &claims, &both);
    // What an older generation counted is over.
    let slices = [partitions("old", 1, "3"), partitions("new", 2, "2")].concat();
    check(&slices, &claims, &[]);
}

#[test]
fn claims_that_do_not_count_conflict_with_none() {
    let device = make::device(
        "a",
        json!({"allowMultipleAllocations": true, "capacity": {"memory": {"value": "4Gi"}}}),
    );
    let shared = make::slice("q", vec![device], json!({}));
    let mut cluster = Cluster::new(Features::ALL);
    for slice in partitions("new", 1, "3").into_iter().chain([shared]) {
        cluster.apply(&make::read(slice));
    }
    for (name, own) in [("one", "a"), ("two", "b")] {
        let mut share = result(&format!("a/{name}=3Gi"));
        share["pool"] = "q".into();
        let holder = Holder {
            uid: name.into(),
            ..Holder::default()
        };
        let allocation = json!({"devices": {"results": [result(own), share]}});
        cluster.claim_allocated(&holder, &make::read(allocation));
    }
    assert_eq!(cluster.conflicts("two", |_, _| true).len(), 2);
    assert_eq!(cluster.conflicts("two", |by, _| by.uid != "one"), []);
    let of_pool = |pool: &'static str| cluster.conflicts("two", move |_, held| held.pool == pool);
    assert_eq!((of_pool("p").len(), of_pool("q").len()), (1, 1));
}
