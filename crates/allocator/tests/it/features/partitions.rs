//! Partitionable devices: shared counters, nodes per device.

use serde_json::{Value, json};

use crate::make::{DRIVER, check, claim, device, problem, read, request, slice};
use allot_allocator::problem::Problem;

fn part(name: &str, amount: &str) -> Value {
    device(
        name,
        json!({"consumesCounters": [{"counterSet": "s", "counters": {"mem": {"value": amount}}}]}),
    )
}

/// A pool in two slices: the counter `s/mem`, and the devices.
fn partitioned(total: &str, devices: Vec<Value>) -> Vec<Value> {
    let pool = json!({"pool": {"name": "p", "generation": 1, "resourceSliceCount": 2}});
    let mut counters = slice("p", vec![], pool.clone());
    counters["metadata"]["name"] = "counters".into();
    counters["spec"]["sharedCounters"] =
        json!([{"name": "s", "counters": {"mem": {"value": total}}}]);
    vec![counters, slice("p", devices, pool)]
}

fn made(total: &str, devices: Vec<Value>, count: i64) -> Problem {
    problem(
        partitioned(total, devices),
        vec![claim("c", vec![request("r", count, json!({}))], json!({}))],
    )
}

#[test]
fn devices_share_counters() {
    let devices = || vec![part("a", "4Gi"), part("b", "4Gi"), part("c", "8Gi")];
    check(&made("8Gi", devices(), 1), "r=p/a");
    check(&made("8Gi", devices(), 2), "r=p/a r=p/b");
    check(&made("8Gi", devices(), 3), "nothing");
    check(&made("12Gi", devices(), 2), "r=p/a r=p/b");
}

#[test]
fn devices_in_use_have_taken_theirs() {
    let mut used = made(
        "8Gi",
        vec![part("a", "4Gi"), part("b", "8Gi"), part("c", "4Gi")],
        1,
    );
    used.allocated_devices = read(json!([{"driver": DRIVER, "pool": "p", "device": "a"}]));
    check(&used, "r=p/c");
    // An overdrawn counter blocks the pool.
    used.allocated_devices = read(json!([
        {"driver": DRIVER, "pool": "p", "device": "a"}, {"driver": DRIVER, "pool": "p", "device": "b"},
    ]));
    check(&used, "nothing");
}

#[test]
fn a_choice_is_taken_back_when_counters_run_out() {
    let requests = vec![
        request("r", 1, json!({})),
        request("s", 1, json!({"tolerations": [{"operator": "Exists"}]})),
    ];
    let mut big = part("b", "6Gi");
    big["taints"] = json!([{"key": "k", "effect": "NoSchedule"}]);
    let slices = partitioned("8Gi", vec![part("a", "4Gi"), part("c", "2Gi"), big]);
    check(
        &problem(slices.clone(), vec![claim("c", requests, json!({}))]),
        "r=p/a s=p/c",
    );
    let three = vec![
        request("r", 1, json!({})),
        request("s", 2, json!({"tolerations": [{"operator": "Exists"}]})),
    ];
    check(
        &problem(slices, vec![claim("c", three, json!({}))]),
        "nothing",
    );
}

#[test]
fn without_the_feature_partitions_do_not_exist() {
    let mut off = made("8Gi", vec![part("a", "4Gi"), device("whole", json!({}))], 1);
    off.features.retain(|f| f != "DRAPartitionableDevices");
    check(&off, "r=p/whole");
    let requests = off.claims[0]
        .spec
        .devices
        .as_mut()
        .unwrap()
        .requests
        .as_mut()
        .unwrap();
    requests[0].exactly.as_mut().unwrap().count = Some(2);
    check(&off, "nothing");
}

#[test]
fn counters_that_do_not_exist_make_the_pool_invalid() {
    let other = device(
        "a",
        json!({"consumesCounters": [{"counterSet": "t", "counters": {"mem": {"value": "1"}}}]}),
    );
    check(
        &made("8Gi", vec![other], 1),
        "node error: invalid resource pools were encountered",
    );
    let other = device(
        "a",
        json!({"consumesCounters": [{"counterSet": "s", "counters": {"x": {"value": "1"}}}]}),
    );
    check(
        &made("8Gi", vec![other], 1),
        "node error: invalid resource pools were encountered",
    );
}

#[test]
fn pools_of_two_drivers_do_not_share_counters() {
    // Upstream knows counters by the name of the pool only.
    let mut slices = partitioned("1", vec![part("a", "1")]);
    let mut others = partitioned("1", vec![part("b", "1")]);
    for slice in &mut others {
        slice["spec"]["driver"] = "other.example.com".into();
    }
    slices.extend(others);
    let two = claim("c", vec![request("r", 2, json!({}))], json!({}));
    check(&problem(slices, vec![two]), "r=p/a r=p/b");
}

#[test]
fn a_shared_device_takes_its_counters_once() {
    let mut shareable = part("a", "8Gi");
    shareable["allowMultipleAllocations"] = true.into();
    let requests = vec![request("r", 1, json!({})), request("s", 1, json!({}))];
    let made = problem(
        partitioned("8Gi", vec![shareable]),
        vec![claim("c", requests, json!({}))],
    );
    check(&made, "r=p/a s=p/a");
}

#[test]
fn each_device_can_be_for_other_nodes() {
    let devices = vec![
        device("a", json!({"nodeName": "n2"})),
        device(
            "b",
            json!({"nodeSelector": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
            ]}}),
        ),
        device("c", json!({"allNodes": true})),
    ];
    let slices = vec![slice("p", devices, json!({"perDeviceNodeSelection": true}))];
    let made = |count| {
        problem(
            slices.clone(),
            vec![claim("c", vec![request("r", count, json!({}))], json!({}))],
        )
    };
    let results = check(&made(2), "r=p/b r=p/c");
    let selector = serde_json::to_value(results[0].node_selector.as_ref().unwrap()).unwrap();
    let expected = json!({"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
    ]});
    assert_eq!(selector, expected);
    check(&made(3), "nothing");
}

#[test]
fn a_shared_device_that_is_taken_back_gives_its_counters_back() {
    let kind = |device: &mut Value, kind: &str, x: i64| {
        device["attributes"] = json!({"kind": {"string": kind}, "x": {"int": x}});
    };
    let wants = |kind: &str| {
        let expression = format!("device.attributes[{DRIVER:?}].kind == {kind:?}");
        json!({"selectors": [{"cel": {"expression": expression}}]})
    };
    let matching = json!({"constraints": [{"matchAttribute": format!("{DRIVER}/x")}]});
    let made = |capacity: Value, again: bool| {
        let mut shared = part("a", "8Gi");
        shared["allowMultipleAllocations"] = true.into();
        shared["capacity"] = capacity;
        kind(&mut shared, "one", 2);
        let mut plain = device("b", json!({}));
        kind(&mut plain, "one", 1);
        let mut last = part("c", "8Gi");
        kind(&mut last, "two", 1);
        let mut requests = vec![request("r", 1, wants("one")), request("s", 1, wants("two"))];
        if again {
            // The last claim may have the shared device again, if its counters count as paid.
            requests.pop();
            requests.push(request("t", 1, json!({})));
        }
        problem(
            partitioned("8Gi", vec![shared, plain, last]),
            vec![claim("c", requests, matching.clone())],
        )
    };
    let upstream = |made: Problem| Problem {
        upstream_errors: true,
        ..made
    };
    let some = || json!({"mem": {"value": "1"}});
    check(&made(some(), false), "r=p/b s=p/c");
    check(&upstream(made(some(), false)), "nothing");
    check(&made(json!({}), true), "r=p/a t=p/a");
    check(&upstream(made(json!({}), true)), "r=p/a t=p/a");
}

/// A partition that is in use but no longer published has unknown counters.
#[test]
fn counters_of_a_withdrawn_device_are_not_given_away() {
    let with = |devices: Vec<Value>, used: Value| {
        let mut made = made("8Gi", devices, 1);
        made.allocated_devices = read(used);
        made
    };
    let half = json!([{"driver": DRIVER, "pool": "p", "device": "half"}]);
    let whole = || vec![part("whole", "8Gi")];
    check(&with(whole(), json!([])), "r=p/whole");
    check(&with(whole(), half.clone()), "nothing");
    let upstream = Problem {
        upstream_errors: true,
        ..with(whole(), half.clone())
    };
    check(&upstream, "r=p/whole");
    // What consumes no counters is not affected.
    let plain = vec![part("whole", "8Gi"), device("z", json!({}))];
    check(&with(plain, half.clone()), "r=p/z");
    let back = vec![part("half", "4Gi"), part("other", "4Gi")];
    check(&with(back, half), "r=p/other");
}

#[test]
fn a_device_with_two_terms_keeps_only_itself_from_use() {
    let term = |key: &str| json!({"matchExpressions": [{"key": key, "operator": "Exists"}]});
    let two = device(
        "a",
        json!({"nodeSelector": {"nodeSelectorTerms": [term("zone"), term("y")]}}),
    );
    let good = device("b", json!({"nodeName": "n1"}));
    let made = |devices| {
        problem(
            vec![slice("p", devices, json!({"perDeviceNodeSelection": true}))],
            vec![claim("c", vec![request("r", 1, json!({}))], json!({}))],
        )
    };
    check(&made(vec![two.clone(), good]), "r=p/b");
    check(&made(vec![two]), "nothing");
}
