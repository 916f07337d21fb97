//! Answers that are known from equal nodes.

use allot_allocator::problem::Problem;
use allot_allocator::{Allocator, ClaimShapes, Cluster, Holder, Limits, Outcome, SelectorCache};
use serde_json::{Value, json};

use crate::make::{claim, device, problem, read, request, slice};

/// Three nodes with two devices each, which differ in names and serial numbers.
fn three_nodes(request_fields: Value, constraints: Value) -> Problem {
    let pool = |node: usize| {
        let devices = (0..2).map(|index| {
            device(
                &format!("gpu-{node}-{index}"),
                json!({"attributes": {
                    "model": {"string": "a100"}, "serial": {"string": format!("{node}/{index}")},
                }}),
            )
        });
        let name = format!("n{node}");
        slice(
            &format!("pool-{node}"),
            devices.collect(),
            json!({"nodeName": name}),
        )
    };
    let claim = claim(
        "c",
        vec![request("r", 2, request_fields)],
        json!({"constraints": constraints}),
    );
    let mut problem = problem((1..=3).map(pool).collect(), vec![claim]);
    problem.nodes = (1..=3)
        .map(|n| read(json!({"metadata": {"name": format!("n{n}")}})))
        .collect();
    problem
}

/// Asks for all nodes; how many have devices, and how many answers were known.
#[track_caller]
fn check(problem: &Problem, fitting: usize, known: u64) {
    let (cluster, claims) = (problem.cluster(), problem.claims(&SelectorCache::new()));
    let mut allocator = Allocator::new();
    let mut found = 0;
    for (number, node) in problem.nodes().iter().enumerate() {
        match allocator.allocate(&cluster, node, &claims, &Limits::default()) {
            Outcome::Allocated(allocation) => {
                found += 1;
                let devices: Vec<_> = allocation.devices(&claims).map(|d| d.device).collect();
                let expected = [0, 1].map(|index| format!("gpu-{}-{index}", number + 1));
                assert_eq!(devices, expected);
            }
            Outcome::DoesNotFit => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((found, allocator.remembered()), (fitting, known));
}

fn selector(expression: &str) -> Value {
    json!({"selectors": [{"cel": {"expression": expression}}]})
}

const MODEL: &str = "device.attributes['gpu.example.com'].model == 'a100'";

#[test]
fn nodes_that_differ_in_unread_attributes_are_equal() {
    check(&three_nodes(selector(MODEL), json!([])), 3, 2);
    let same = json!([{"matchAttribute": "gpu.example.com/model"}]);
    check(&three_nodes(json!({}), same), 3, 2);
}

#[test]
fn what_is_read_makes_a_difference() {
    let serial = "device.attributes['gpu.example.com'].serial != '2/1'";
    check(&three_nodes(selector(serial), json!([])), 2, 0);
    let distinct = json!([{"distinctAttribute": "gpu.example.com/serial"}]);
    check(&three_nodes(json!({}), distinct), 3, 0);
    // What an expression of another form reads is not known.
    let other = format!("[1].all(x, {MODEL})");
    check(&three_nodes(selector(&other), json!([])), 3, 0);
}

#[test]
fn devices_in_use_make_a_difference() {
    let mut problem = three_nodes(selector(MODEL), json!([]));
    problem.allocated_devices =
        read(json!([{"driver": "gpu.example.com", "pool": "pool-2", "device": "gpu-2-0"}]));
    check(&problem, 2, 1);
}

#[test]
fn the_budget_holds_for_answers_that_are_known() {
    let problem = three_nodes(selector(MODEL), json!([]));
    let (cluster, claims) = (problem.cluster(), problem.claims(&SelectorCache::new()));
    let (mut allocator, nodes) = (Allocator::new(), problem.nodes());
    allocator.allocate(&cluster, &nodes[0], &claims, &Limits::default());
    let few = Limits {
        steps: 1,
        ..Limits::default()
    };
    let outcome = allocator.allocate(&cluster, &nodes[1], &claims, &few);
    assert!(matches!(outcome, Outcome::GaveUp { .. }), "{outcome:?}");
}

#[test]
fn whether_there_are_devices_is_known_until_something_changes_on_the_node() {
    let problem = three_nodes(selector(MODEL), json!([]));
    let (mut cluster, selectors) = (problem.cluster(), SelectorCache::new());
    let (mut allocator, mut shapes, nodes) =
        (Allocator::new(), ClaimShapes::default(), problem.nodes());
    // Another claim of the same form each time. How many nodes have devices, and how many answers were not known.
    let mut ask = |cluster: &Cluster| {
        let mut claims = problem.claims(&selectors);
        shapes.recognize(&mut claims);
        let before = allocator.remembered();
        let fits = nodes.iter().filter(|node| {
            let outcome = allocator.probe(cluster, node, &claims, &Limits::default());
            matches!(outcome, Outcome::Allocated(()))
        });
        let fits = fits.count();
        (fits, nodes.len() as u64 - (allocator.remembered() - before))
    };
    assert_eq!(ask(&cluster), (3, 1), "the others are equal");
    assert_eq!(ask(&cluster), (3, 0));
    let snapshot = cluster.clone();
    let uid = |uid: &str| Holder {
        uid: uid.into(),
        ..Holder::default()
    };
    let result =
        json!({"request": "r", "driver": "gpu.example.com", "pool": "pool-2", "device": "gpu-2-0"});
    let taken = read(json!({"devices": {"results": [result]}}));
    cluster.claim_allocated(&uid("other"), &taken);
    assert_eq!(ask(&cluster), (2, 1));
    assert_eq!(ask(&cluster), (2, 0));
    assert_eq!(ask(&snapshot), (3, 0), "as it was before");
    cluster.claim_released("other");
    assert_eq!(ask(&cluster), (3, 0), "as it was, so equal to another one");
    cluster.remove("nothing");
    assert_eq!(ask(&cluster), (3, 0));
    // A pool that changed before another one, and is removed.
    let more = slice(
        "more",
        vec![device(
            "gpu",
            json!({"attributes": {"model": {"string": "a100"}}}),
        )],
        json!({"nodeName": "n2"}),
    );
    cluster.apply_as("more", &read(more));
    cluster.claim_allocated(&uid("other"), &taken);
    assert_eq!(ask(&cluster).0, 3);
    cluster.remove("more");
    assert_eq!(ask(&cluster).0, 2);
}
