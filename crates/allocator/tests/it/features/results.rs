//! What is written to the claims: names, configuration, node selectors.

use serde_json::{Value, json};

use crate::make::{check, claim, device, first_available, plain, problem, read, request, slice};
use allot_allocator::problem::Problem;
use k8s_openapi::api::resource::v1 as api;

fn config(results: &[api::AllocationResult]) -> Value {
    let config = results[0]
        .devices
        .as_ref()
        .unwrap()
        .config
        .clone()
        .unwrap_or_default();
    serde_json::to_value(config).unwrap()
}

fn opaque(key: &str) -> Value {
    json!({"driver": "gpu.example.com", "parameters": {"k": key}})
}

fn with_class_config(mut made: Problem) -> Problem {
    made.device_classes = vec![
        read(json!({"metadata": {"name": "any"}, "spec": {"config": [{"opaque": opaque("any")}]}})),
        read(
            json!({"metadata": {"name": "other"}, "spec": {"config": [{"opaque": opaque("other")}]}}),
        ),
    ];
    made
}

#[test]
fn configuration_of_classes_comes_first_and_once() {
    let requests = vec![
        request("r", 1, json!({})),
        request("s", 1, json!({"deviceClassName": "other"})),
        request("t", 1, json!({})),
    ];
    let fields = json!({"config": [{"opaque": opaque("claim")}]});
    let made = problem(
        vec![slice("p", plain(&["a", "b", "c"]), json!({}))],
        vec![claim("c", requests, fields)],
    );
    let results = check(&with_class_config(made), "r=p/a s=p/b t=p/c");
    let expected = json!([
        {"source": "FromClass", "requests": ["r", "t"], "opaque": opaque("any")},
        {"source": "FromClass", "requests": ["s"], "opaque": opaque("other")},
        {"source": "FromClaim", "opaque": opaque("claim")},
    ]);
    assert_eq!(config(&results), expected);
}

#[test]
fn configuration_for_alternatives_that_were_not_taken_is_left_out() {
    let list = vec![
        ("big", 2, json!({})),
        ("small", 1, json!({"deviceClassName": "other"})),
    ];
    let fields = json!({"config": [
        {"requests": ["r/big"], "opaque": opaque("big")},
        {"requests": ["r/small"], "opaque": opaque("small")},
        {"requests": ["r"], "opaque": opaque("both")},
    ]});
    let made = problem(
        vec![slice("p", plain(&["a"]), json!({}))],
        vec![claim("c", vec![first_available("r", list)], fields)],
    );
    let results = check(&with_class_config(made), "r/small=p/a");
    let expected = json!([
        {"source": "FromClass", "requests": ["r/small"], "opaque": opaque("other")},
        {"source": "FromClaim", "requests": ["r/small"], "opaque": opaque("small")},
        {"source": "FromClaim", "requests": ["r"], "opaque": opaque("both")},
    ]);
    assert_eq!(config(&results), expected);
}

fn selector(results: &[api::AllocationResult]) -> Value {
    serde_json::to_value(&results[0].node_selector).unwrap()
}

fn this_node() -> Value {
    json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]})
}

#[test]
fn local_devices_bind_the_pod_to_the_node() {
    let one = || vec![claim("c", vec![request("r", 1, json!({}))], json!({}))];
    let results = check(
        &problem(vec![slice("p", plain(&["a"]), json!({}))], one()),
        "r=p/a",
    );
    assert_eq!(selector(&results), this_node());
    let everywhere = slice("p", plain(&["a"]), json!({"allNodes": true}));
    assert_eq!(
        selector(&check(&problem(vec![everywhere], one()), "r=p/a")),
        Value::Null
    );
    let binds = slice(
        "p",
        vec![device("a", json!({"bindsToNode": true}))],
        json!({"allNodes": true}),
    );
    assert_eq!(
        selector(&check(&problem(vec![binds], one()), "r=p/a")),
        this_node()
    );
}

#[test]
fn node_selectors_of_devices_are_joined_without_repetition() {
    let terms = |values: Value| {
        json!({"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "zone", "operator": "In", "values": values},
        ]}]}})
    };
    let slices = vec![
        slice("p", plain(&["a"]), terms(json!(["a", "b"]))),
        slice("q", plain(&["a"]), terms(json!(["b", "a"]))),
        slice("s", plain(&["a"]), terms(json!(["a"]))),
    ];
    let made = problem(
        slices,
        vec![claim("c", vec![request("r", 3, json!({}))], json!({}))],
    );
    let expected = json!({"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "zone", "operator": "In", "values": ["a", "b"]},
        {"key": "zone", "operator": "In", "values": ["a"]},
    ]}]});
    assert_eq!(selector(&check(&made, "r=p/a r=q/a r=s/a")), expected);
}
