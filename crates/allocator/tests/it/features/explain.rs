//! Reasons for what does not fit.

use allot_allocator::explain::{Explanation, StageKind};
use allot_allocator::problem::Problem;
use allot_allocator::{Allocator, Holder, Limits, SelectorCache};
use serde_json::{Value, json};

use crate::make::{DRIVER, claim, device, plain, problem, read, request, slice};

fn explain(problem: &Problem) -> Explanation {
    let claims = problem.claims(&SelectorCache::new());
    let node = &problem.nodes()[0];
    Allocator::new()
        .explain(&problem.cluster(), node, &claims, &Limits::default())
        .1
}

fn gpu(name: &str, memory: &str, fields: Value) -> Value {
    let mut made = device(name, json!({"capacity": {"memory": {"value": memory}}}));
    for (key, value) in fields.as_object().unwrap() {
        made[key] = value.clone();
    }
    made
}

const BIG: &str = "device.capacity[\"gpu.example.com\"].memory.compareTo(quantity(\"80Gi\")) >= 0";

fn selecting(count: i64) -> Vec<Value> {
    vec![claim(
        "c",
        vec![request(
            "r",
            count,
            json!({"selectors": [{"cel": {"expression": BIG}}]}),
        )],
        json!({}),
    )]
}

#[test]
fn every_check_shows_what_it_leaves() {
    let devices = vec![
        gpu("a", "40Gi", json!({})),
        gpu(
            "b",
            "80Gi",
            json!({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}),
        ),
        gpu("c", "80Gi", json!({})),
        gpu("d", "80Gi", json!({})),
    ];
    let mut made = problem(vec![slice("p", devices, json!({}))], selecting(2));
    made.allocated_devices = read(json!([{"driver": DRIVER, "pool": "p", "device": "c"}]));
    let explanation = explain(&made);
    let request = &explanation.requests[0];
    let counts: Vec<_> = request
        .filter_counts
        .iter()
        .map(|s| (s.kind, s.left))
        .collect();
    let expected = [
        (StageKind::Seen, 4),
        (StageKind::Class, 4),
        (StageKind::Selector, 3),
        (StageKind::Taints, 2),
        (StageKind::InUse, 1),
    ];
    assert_eq!(counts, expected);
    assert_eq!(request.in_use[0].device, "p/c");
    assert_eq!(request.in_use[0].by, ["other"]);
    assert_eq!(
        explanation.line,
        format!(
            "claim default/c, request r needs 2 devices, 4 seen, 3 selected by `{BIG}`, 2 without a taint, 1 not in use; \
             nearest is p/c: in use by other"
        )
    );
}

/// Devices in use are not reported if there would be too few devices even if they were free.
#[test]
fn regression_a_request_for_more_than_there_is_does_not_blame_users() {
    let devices = || {
        vec![
            gpu("a", "80Gi", json!({})),
            gpu("b", "80Gi", json!({})),
            gpu("c", "40Gi", json!({})),
        ]
    };
    let used = read(json!([{"driver": DRIVER, "pool": "p", "device": "a"}]));
    let mut made = problem(vec![slice("p", devices(), json!({}))], selecting(3));
    made.allocated_devices = used;
    let explanation = explain(&made);
    assert_eq!(
        explanation.line,
        format!(
            "claim default/c, request r needs 3 devices, 3 seen, 2 selected by `{BIG}`; \
             nearest is p/c: memory 40Gi, selector needs >= 80Gi"
        )
    );
    made = problem(vec![slice("p", devices(), json!({}))], selecting(4));
    made.allocated_devices = read(json!([{"driver": DRIVER, "pool": "p", "device": "a"}]));
    let explanation = explain(&made);
    assert_eq!(
        explanation.line,
        "claim default/c, request r needs 4 devices, 3 seen; the node has no more"
    );
}

/// The nearest device was the network card beside the GPUs, for which the class had the wrong driver.
#[test]
fn regression_devices_of_another_kind_are_not_near() {
    let gpus = vec![device("a", json!({})), device("b", json!({}))];
    let mut other = slice("q", vec![device("nic", json!({}))], json!({}));
    other["spec"]["driver"] = "nic.example.com".into();
    let told = |slices: Vec<Value>, count: i64| {
        let claims = vec![claim("c", vec![request("r", count, json!({}))], json!({}))];
        let mut made = problem(slices, claims);
        let selector = json!({"cel": {"expression": format!("device.driver == '{DRIVER}'")}});
        made.device_classes =
            read(json!([{"metadata": {"name": "any"}, "spec": {"selectors": [selector]}}]));
        explain(&made).line
    };
    assert_eq!(
        told(vec![slice("p", gpus, json!({})), other.clone()], 3),
        "claim default/c, request r needs 3 devices, 3 seen, 2 in the class; the node has no more"
    );
    // Where the class has none, what it selects is the question.
    let line = told(vec![other], 1);
    assert!(
        line.contains("0 in the class; nearest is q/nic: driver nic.example.com"),
        "{line}"
    );
}

#[test]
fn the_nearest_device_and_the_value_that_fails() {
    let devices = vec![gpu("a", "20Gi", json!({})), gpu("b", "40Gi", json!({}))];
    let explanation = explain(&problem(vec![slice("p", devices, json!({}))], selecting(1)));
    let nearest = explanation.requests[0].nearest.as_ref().unwrap();
    assert_eq!(
        (nearest.device.as_str(), nearest.reason.as_str()),
        ("p/a", "memory 20Gi, selector needs >= 80Gi")
    );
    assert!(
        explanation
            .line
            .ends_with("nearest is p/a: memory 20Gi, selector needs >= 80Gi"),
        "{}",
        explanation.line
    );
}

#[test]
fn a_node_without_devices() {
    let explanation = explain(&problem(vec![], selecting(1)));
    assert_eq!(
        explanation.line,
        "claim default/c, request r needs 1 device, the node has none"
    );
}

#[test]
fn constraints_and_competition() {
    let rooted =
        |name: &str, root: i64| device(name, json!({"attributes": {"root": {"int": root}}}));
    let slices = || {
        vec![slice(
            "p",
            vec![rooted("a", 1), rooted("b", 2), rooted("c", 2)],
            json!({}),
        )]
    };
    let same = json!({"constraints": [{"matchAttribute": "gpu.example.com/root"}]});
    let three = vec![claim("c", vec![request("r", 3, json!({}))], same.clone())];
    assert_eq!(
        explain(&problem(slices(), three)).line,
        "claim default/c, request r needs 3 devices, 3 seen, 2 together under matchAttribute gpu.example.com/root"
    );
    let two_each = vec![claim(
        "c",
        vec![request("r", 2, json!({})), request("s", 1, json!({}))],
        same,
    )];
    assert_eq!(
        explain(&problem(slices(), two_each)).line,
        "claim default/c: there are not enough devices with the same gpu.example.com/root"
    );
    let four = vec![claim(
        "c",
        vec![request("r", 2, json!({})), request("s", 2, json!({}))],
        json!({}),
    )];
    assert_eq!(
        explain(&problem(slices(), four)).line,
        "there are not enough devices for all requests together"
    );
}

#[test]
fn pools_that_cannot_be_used_are_named() {
    let mut slices = vec![slice("p", vec![device("a", json!({}))], json!({}))];
    slices[0]["spec"]["pool"]["resourceSliceCount"] = 2.into();
    let made = problem(
        slices,
        vec![claim("c", vec![request("r", 1, json!({}))], json!({}))],
    );
    assert_eq!(
        explain(&made).line,
        "claim default/c, request r needs 1 device, the node has none; \
         pool gpu.example.com/p cannot be used: some of its slices are not published yet (1 of 2 are there)"
    );
}

#[test]
fn what_fits_is_said_too() {
    let made = problem(
        vec![slice("p", vec![device("a", json!({}))], json!({}))],
        vec![claim("c", vec![request("r", 1, json!({}))], json!({}))],
    );
    let explanation = explain(&made);
    assert!(explanation.fits);
    assert_eq!(explanation.line, "fits: r=p/a");
}

#[test]
fn shares_and_counters() {
    let shared = gpu("a", "8Gi", json!({"allowMultipleAllocations": true}));
    let wanted = request("r", 1, json!({"capacity": {"requests": {"memory": "6Gi"}}}));
    let mut made = problem(
        vec![slice("p", vec![shared], json!({}))],
        vec![claim("c", vec![wanted], json!({}))],
    );
    made.consumed_capacity = read(
        json!([{"driver": DRIVER, "pool": "p", "device": "a", "capacity": {"memory": "4Gi"}}]),
    );
    assert_eq!(
        explain(&made).line,
        "claim default/c, request r needs 1 device, 1 seen, 0 with enough capacity; \
         nearest is p/a: memory 4Gi left of 8Gi, request takes 6Gi"
    );
}

/// Readers of events may not have access to other namespaces.
#[test]
fn claims_of_other_namespaces_are_counted_and_not_named() {
    let check = |holders: &[(&str, &str)], expected: &str| {
        let made = problem(
            vec![slice("p", plain(&["a"]), json!({}))],
            vec![claim("c", vec![request("r", 1, json!({}))], json!({}))],
        );
        let mut cluster = made.cluster();
        for (index, (namespace, name)) in holders.iter().enumerate() {
            let holder = Holder {
                namespace: (*namespace).into(),
                name: (*name).into(),
                uid: format!("uid-{index}").into(),
            };
            let result = json!({"devices": {"results": [{"request": "r", "driver": DRIVER, "pool": "p", "device": "a"}]}});
            cluster.claim_allocated(&holder, &read(result));
        }
        let claims = made.claims(&SelectorCache::new());
        let limits = Limits::default();
        let mut allocator = Allocator::new();
        let (_, explanation) = allocator.explain(&cluster, &made.nodes()[0], &claims, &limits);
        let nearest = explanation.requests[0].nearest.as_ref().unwrap();
        assert_eq!(nearest.reason, expected);
        assert!(explanation.line.ends_with(expected), "{}", explanation.line);
        // A caller with its own permissions sees them all.
        assert_eq!(explanation.requests[0].in_use[0].by.len(), holders.len());
        for conflict in cluster.conflicts("uid-0", |_, _| true) {
            let text = conflict.describe("default");
            assert!(!text.contains("secret"), "{text}");
        }
    };
    check(&[("default", "x")], "in use by default/x");
    check(
        &[("team-b", "secret-1")],
        "in use by a claim of another namespace",
    );
    check(
        &[
            ("team-b", "secret-1"),
            ("default", "x"),
            ("team-c", "secret-2"),
        ],
        "in use by default/x, 2 claims of other namespaces",
    );
}

/// By requests that are satisfied, then by how far the others get.
#[test]
fn nodes_are_compared_by_how_near_they_come() {
    let near = |slices: Vec<Value>, claims: Vec<Value>| {
        let made = problem(slices, claims);
        let claims = made.claims(&SelectorCache::new());
        Allocator::nearness(&made.cluster(), &made.nodes()[0], &claims).0
    };
    let one = |devices: Vec<Value>| near(vec![slice("p", devices, json!({}))], selecting(1));
    let tainted = json!({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]});
    let in_order = [
        near(vec![], selecting(1)),
        one(vec![gpu("a", "40Gi", json!({}))]),
        // Not published as a whole yet, and one of its devices would do.
        near(
            vec![slice(
                "p",
                vec![gpu("a", "80Gi", json!({}))],
                json!({"pool": {"name": "p", "generation": 1, "resourceSliceCount": 2}}),
            )],
            selecting(1),
        ),
        one(vec![gpu("a", "80Gi", tainted)]),
        one(vec![gpu("a", "80Gi", json!({}))]),
    ];
    assert!(in_order.is_sorted_by(|a, b| a < b), "{in_order:?}");
    assert_eq!(in_order[4].satisfied, 1);
    let two = near(
        vec![slice("p", vec![gpu("a", "80Gi", json!({}))], json!({}))],
        selecting(2),
    );
    assert!(two < in_order[4] && two.devices == 1, "{two:?}");
}

/// However many devices of other kinds a node has.
#[test]
fn devices_of_other_drivers_bring_a_node_no_nearer() {
    let near = |slices: Vec<Value>| {
        let own = json!({"selectors": [{"cel": {"expression": format!("device.driver == \"{DRIVER}\"")}}]});
        let claims = vec![claim("c", vec![request("r", 9, own)], json!({}))];
        let made = problem(slices, claims);
        let claims = made.claims(&SelectorCache::new());
        Allocator::nearness(&made.cluster(), &made.nodes()[0], &claims).0
    };
    let many = |count: usize, driver: &str| {
        let names: Vec<String> = (0..count).map(|i| format!("d{i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        vec![slice("p", plain(&names), json!({"driver": driver}))]
    };
    let (others, own) = (near(many(20, "nic.example.com")), near(many(8, DRIVER)));
    assert!(others < own, "{others:?} {own:?}");
    assert_eq!((own.satisfied, own.devices), (0, 8));
}
