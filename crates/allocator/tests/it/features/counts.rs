//! How many devices: exact counts, all, alternatives, limits.

use allot_allocator::problem::Problem;
use serde_json::{Value, json};

use crate::make::{all, check, claim, device, first_available, plain, problem, request, slice};

fn one_pool(names: &[&str]) -> Vec<Value> {
    vec![slice("p", plain(names), json!({}))]
}

#[test]
fn exact_count_takes_the_first_free_devices() {
    let mut made = problem(
        one_pool(&["a", "b", "c"]),
        vec![claim("c", vec![request("r", 2, json!({}))], json!({}))],
    );
    check(&made, "r=p/a r=p/b");
    made.allocated_devices =
        crate::make::read(json!([{"driver": "gpu.example.com", "pool": "p", "device": "a"}]));
    check(&made, "r=p/b r=p/c");
}

#[test]
fn too_few_devices() {
    let made = problem(
        one_pool(&["a", "b"]),
        vec![claim("c", vec![request("r", 3, json!({}))], json!({}))],
    );
    check(&made, "nothing");
}

#[test]
fn claims_do_not_share_devices() {
    let one = |name| claim(name, vec![request("r", 1, json!({}))], json!({}));
    check(
        &problem(one_pool(&["a", "b"]), vec![one("c"), one("d")]),
        "r=p/a; r=p/b",
    );
    check(
        &problem(one_pool(&["a"]), vec![one("c"), one("d")]),
        "nothing",
    );
}

#[test]
fn a_claim_without_requests_gets_nothing() {
    check(
        &problem(one_pool(&["a"]), vec![claim("c", vec![], json!({}))]),
        "",
    );
    check(&problem(one_pool(&["a"]), vec![]), "");
}

#[test]
fn all_devices_or_none() {
    let made = |names: &[&str]| {
        problem(
            one_pool(names),
            vec![claim("c", vec![all("r", json!({}))], json!({}))],
        )
    };
    check(&made(&["a", "b"]), "r=p/a r=p/b");
    check(&made(&[]), "nothing");
    let mut used = made(&["a", "b"]);
    used.allocated_devices =
        crate::make::read(json!([{"driver": "gpu.example.com", "pool": "p", "device": "b"}]));
    check(&used, "nothing");
}

#[test]
fn all_fails_on_a_node_of_which_a_pool_is_incomplete() {
    let mut slices = one_pool(&["a"]);
    slices[0]["spec"]["pool"]["resourceSliceCount"] = 2.into();
    let made = problem(
        slices,
        vec![claim("c", vec![all("r", json!({}))], json!({}))],
    );
    let text = "claim default/c, request r: asks for all devices, but resource pool gpu.example.com/p is currently being updated";
    check(&made, &format!("node error: {text}"));
    // Upstream ends the attempt for all nodes.
    let upstream = Problem {
        upstream_errors: true,
        ..made
    };
    check(&upstream, &format!("error: {text}"));
}

#[test]
fn the_next_alternative_is_tried_while_all_is_not_known() {
    let made = |pools: Vec<Value>| {
        let every = json!({"allocationMode": "All", "count": null});
        let list = vec![("every", 0, every), ("single", 1, json!({}))];
        problem(
            pools,
            vec![claim("c", vec![first_available("r", list)], json!({}))],
        )
    };
    let incomplete = || {
        slice(
            "q",
            plain(&["b"]),
            json!({"pool": {"name": "q", "generation": 1, "resourceSliceCount": 2}}),
        )
    };
    check(&made(one_pool(&["a", "b"])), "r/every=p/a r/every=p/b");
    let both = [one_pool(&["a", "b"]), vec![incomplete()]].concat();
    check(&made(both), "r/single=p/a");
    check(&made(vec![incomplete()]), "nothing");
}

#[test]
fn a_claim_gets_at_most_32_devices() {
    let names: Vec<String> = (0..40).map(|i| format!("d{i:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let made = |requests| problem(one_pool(&names), vec![claim("c", requests, json!({}))]);
    let limit =
        "error: claim default/c: number of requested devices 33 exceeds the claim limit of 32";
    check(&made(vec![request("r", 33, json!({}))]), limit);
    check(
        &made(vec![
            request("r", 20, json!({})),
            request("s", 13, json!({})),
        ]),
        limit,
    );
    let text = crate::make::solve(
        &made(vec![request("r", 32, json!({}))]),
        &allot_allocator::Limits::default(),
    )
    .0;
    assert_eq!(text.split(' ').count(), 32);
}

#[test]
fn the_first_alternative_that_works_is_taken() {
    let made = |names: &[&str]| {
        let list = vec![("two", 2, json!({})), ("one", 1, json!({}))];
        problem(
            one_pool(names),
            vec![claim("c", vec![first_available("r", list)], json!({}))],
        )
    };
    check(&made(&["a", "b"]), "r/two=p/a r/two=p/b");
    check(&made(&["a"]), "r/one=p/a");
    check(&made(&[]), "nothing");
}

#[test]
fn alternatives_step_back_for_later_requests() {
    let list = vec![("two", 2, json!({})), ("one", 1, json!({}))];
    let requests = vec![first_available("r", list), request("s", 1, json!({}))];
    let made = problem(one_pool(&["a", "b"]), vec![claim("c", requests, json!({}))]);
    check(&made, "r/one=p/a s=p/b");
}

#[test]
fn alternatives_that_exceed_the_limit_are_skipped() {
    let names: Vec<String> = (0..40).map(|i| format!("d{i:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let list = vec![("many", 20, json!({})), ("few", 1, json!({}))];
    let requests = vec![request("r", 20, json!({})), first_available("s", list)];
    let made = problem(one_pool(&names), vec![claim("c", requests, json!({}))]);
    let text = crate::make::solve(&made, &allot_allocator::Limits::default()).0;
    assert!(text.ends_with(" s/few=p/d20"), "{text}");
}

#[test]
fn earlier_requests_give_way_to_later_ones() {
    let devices = vec![
        device("a", json!({"bindsToNode": true})),
        device("b", json!({})),
    ];
    let mut made = problem(
        vec![slice("p", devices, json!({}))],
        vec![claim(
            "c",
            vec![request("r", 1, json!({})), request("s", 1, json!({}))],
            json!({}),
        )],
    );
    // Only `a` is tainted, and only `r` tolerates that.
    made.resource_slices[0].spec.devices.as_mut().unwrap()[1].taints =
        Some(vec![crate::make::read(
            json!({"key": "k", "effect": "NoSchedule"}),
        )]);
    let requests = made.claims[0]
        .spec
        .devices
        .as_mut()
        .unwrap()
        .requests
        .as_mut()
        .unwrap();
    requests[0].exactly.as_mut().unwrap().tolerations =
        Some(vec![crate::make::read(json!({"operator": "Exists"}))]);
    check(&made, "r=p/b s=p/a");
}

#[test]
fn what_is_not_understood_is_an_error() {
    let made = |request| problem(one_pool(&["a"]), vec![claim("c", vec![request], json!({}))]);
    check(
        &made(request("r", 1, json!({"allocationMode": "Some"}))),
        "error: claim default/c, request r: unsupported count mode Some",
    );
    check(
        &made(json!({"name": "r"})),
        "error: claim default/c, request r: missing device class name (unsupported request type?)",
    );
    check(
        &made(request("r", 1, json!({"selectors": [{}]}))),
        "error: claim default/c, request r, selector #0: CEL expression empty (unsupported selector type?)",
    );
    check(
        &made(request("r", 1, json!({"deviceClassName": "none"}))),
        "error: claim default/c, request r: could not retrieve device class none:  \"not found\" not found",
    );
}

#[test]
fn features_that_are_off_are_errors() {
    let mut made = problem(
        one_pool(&["a"]),
        vec![claim(
            "c",
            vec![first_available("r", vec![("one", 1, json!({}))])],
            json!({}),
        )],
    );
    made.features.clear();
    check(
        &made,
        "error: claim default/c, request r: has subrequests, but the DRAPrioritizedList feature is disabled",
    );
    let mut made = problem(
        one_pool(&["a"]),
        vec![claim(
            "c",
            vec![request("r", 1, json!({"adminAccess": false}))],
            json!({}),
        )],
    );
    made.features.clear();
    check(
        &made,
        "error: claim default/c, request r: admin access is requested, but the feature is disabled",
    );
}
