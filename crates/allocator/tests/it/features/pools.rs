//! Pools: generations, completeness, order, nodes.

use serde_json::{Value, json};

use crate::make::{check, claim, device, plain, problem, request, slice};

fn one() -> Vec<Value> {
    vec![claim("c", vec![request("r", 1, json!({}))], json!({}))]
}

fn named(mut slice: Value, name: &str) -> Value {
    slice["metadata"]["name"] = name.into();
    slice
}

fn generation(number: i64, count: i64) -> Value {
    json!({"pool": {"name": "p", "generation": number, "resourceSliceCount": count}})
}

#[test]
fn pools_and_slices_are_tried_by_name() {
    let other = |driver: &str, pool: &str| {
        let mut made = slice(pool, plain(&["x"]), json!({}));
        made["spec"]["driver"] = driver.into();
        made
    };
    let pools = vec![
        other("b.example.com", "a"),
        other("a.example.com", "c"),
        other("a.example.com", "b"),
    ];
    let three = vec![claim("c", vec![request("r", 3, json!({}))], json!({}))];
    check(&problem(pools, three), "r=b/x r=c/x r=a/x");
    let slices = vec![
        named(slice("p", plain(&["a"]), generation(1, 2)), "s2"),
        named(slice("p", plain(&["b"]), generation(1, 2)), "s1"),
    ];
    check(&problem(slices, one()), "r=p/b");
}

#[test]
fn pools_with_binding_conditions_come_last() {
    let bound = device(
        "a",
        json!({"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}),
    );
    let slices = vec![
        slice("a", vec![bound], json!({})),
        slice("b", plain(&["b"]), json!({})),
    ];
    let two = vec![claim("c", vec![request("r", 2, json!({}))], json!({}))];
    let results = check(&problem(slices.clone(), two.clone()), "r=b/b r=a/a");
    let list = results[0]
        .devices
        .as_ref()
        .unwrap()
        .results
        .as_ref()
        .unwrap();
    assert_eq!(
        list[1].binding_conditions.as_deref(),
        Some(&["ready".to_owned()][..])
    );
    assert_eq!(
        list[1].binding_failure_conditions.as_deref(),
        Some(&["failed".to_owned()][..])
    );
    let mut off = problem(slices, two);
    off.features
        .retain(|f| !f.starts_with("DRADeviceBindingConditions"));
    check(&off, "nothing");
}

#[test]
fn only_the_newest_generation_counts() {
    let slices = vec![
        named(slice("p", plain(&["old"]), generation(1, 1)), "s1"),
        named(slice("p", plain(&["new"]), generation(2, 1)), "s2"),
    ];
    check(&problem(slices, one()), "r=p/new");
}

#[test]
fn a_generation_that_is_replaced_elsewhere_is_ignored() {
    let slices = vec![
        named(slice("p", plain(&["here"]), generation(1, 2)), "s1"),
        named(
            slice(
                "p",
                plain(&["there"]),
                json!({"nodeName": "n2", "pool": {"name": "p", "generation": 2, "resourceSliceCount": 2}}),
            ),
            "s2",
        ),
    ];
    check(&problem(slices, one()), "nothing");
}

#[test]
fn incomplete_pools_are_not_used() {
    let incomplete = named(slice("p", plain(&["a"]), generation(1, 2)), "s1");
    check(&problem(vec![incomplete.clone()], one()), "nothing");
    check(
        &problem(
            vec![incomplete, slice("q", plain(&["b"]), json!({}))],
            one(),
        ),
        "r=q/b",
    );
}

#[test]
fn slices_for_other_nodes_complete_a_pool() {
    let slices = vec![
        named(slice("p", plain(&["a"]), generation(1, 2)), "s1"),
        named(
            slice(
                "p",
                plain(&["a"]),
                json!({"nodeName": "n2", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 2}}),
            ),
            "s2",
        ),
    ];
    check(&problem(slices, one()), "r=p/a");
}

#[test]
fn a_device_name_that_is_there_twice_makes_a_pool_invalid() {
    let twice = slice("p", plain(&["a", "a"]), json!({}));
    check(
        &problem(vec![twice.clone()], one()),
        "node error: invalid resource pools were encountered",
    );
    check(
        &problem(vec![twice, slice("q", plain(&["b"]), json!({}))], one()),
        "r=q/b",
    );
}

#[test]
fn where_slices_are_for() {
    let selector = |operator: &str, values: Value| {
        json!({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "zone", "operator": operator, "values": values},
        ]}]}})
    };
    for (fields, expected) in [
        (json!({"nodeName": "n1"}), "r=p/a"),
        (json!({"nodeName": "n2"}), "nothing"),
        (json!({"allNodes": true}), "r=p/a"),
        (selector("In", json!(["a", "b"])), "r=p/a"),
        (selector("NotIn", json!(["a"])), "nothing"),
        (selector("Exists", json!([])), "r=p/a"),
        (selector("DoesNotExist", json!([])), "nothing"),
        (selector("Gt", json!(["1"])), "nothing"),
    ] {
        let shown = fields.to_string();
        let made = problem(vec![slice("p", plain(&["a"]), fields)], one());
        let (text, _) = crate::make::solve(&made, &allot_allocator::Limits::default());
        assert_eq!(text, expected, "{shown}");
    }
}

#[test]
fn a_node_selector_that_cannot_be_read_is_an_error() {
    let fields = json!({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "zone", "operator": "Like", "values": ["a"]},
    ]}]}});
    let made = problem(vec![slice("p", plain(&["a"]), fields)], one());
    let (text, _) = crate::make::solve(&made, &allot_allocator::Limits::default());
    let start = "error: gather pool information: failed to perform node selection for slice slice-p: failed to parse node selector";
    assert!(text.starts_with(start), "{text}");
}
