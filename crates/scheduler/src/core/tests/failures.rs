//! A selector or request that fails on one node keeps the pod from all of them, as in upstream: something is wrong with
//! the claim, and where the pod happens to fit nobody would find out.

use super::*;

/// Two nodes with these devices.
fn world(devices: [Value; 2]) -> World {
    let mut world = World::new("");
    for (node, devices) in ["n0", "n1"].into_iter().zip(devices) {
        world.slice(node, devices);
    }
    world
}

impl World {
    fn asking(&mut self, request: Value) {
        let claim = self.object(json!({
            "metadata": {"name": "a", "namespace": "ns", "uid": "uid-a"},
            "spec": {"devices": {"requests": [request]}},
        }));
        self.handle(Input::Claim(Observed::Applied(claim)));
        self.pod("p", &["a"]);
    }
}

fn with(value: Value) -> Value {
    json!([{"name": "d0", "attributes": {"k": value}}])
}

fn picky() -> Value {
    let selectors = json!([{"cel": {"expression": "device.attributes['d'].k == 1"}}]);
    json!({"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1, "selectors": selectors})
}

const FAILURE: &str = "claim ns/a: selector #0: CEL runtime error: no such key: k";

#[test]
fn a_selector_that_fails_on_one_node_ends_the_attempt() {
    // Whichever node is preferred.
    for at in 0..2 {
        let mut devices = [with(json!({"int": 1})), with(json!({"int": 1}))];
        devices[at] = json!([{"name": "d0"}]);
        let mut world = world(devices);
        world.asking(json!({"name": "r", "exactly": picky()}));
        let outcome = world.run();
        assert_eq!(outcome.node(), None);
        assert!(outcome.message().contains(FAILURE), "{}", outcome.message());
    }
}

#[test]
fn nodes_that_other_filters_rule_out_do_not_fail() {
    let mut world = world([with(json!({"int": 1})), json!([{"name": "d0"}])]);
    world.node("n1", json!({"unschedulable": true}));
    world.asking(json!({"name": "r", "exactly": picky()}));
    assert_eq!(world.run().node(), Some("n0"));
}

#[test]
fn a_device_that_is_not_looked_at_does_not_fail() {
    // The first device of each node fits.
    let two = json!([{"name": "d0", "attributes": {"k": {"int": 1}}}, {"name": "d1"}]);
    let mut world = world([two.clone(), two]);
    world.asking(json!({"name": "r", "exactly": picky()}));
    assert!(world.run().node().is_some());
}

#[test]
fn alternatives_fail_as_requests_do() {
    let mut world = world([with(json!({"int": 1})), json!([{"name": "d0"}])]);
    let mut first = picky();
    first["name"] = json!("one");
    let second =
        json!({"name": "two", "deviceClassName": "c", "allocationMode": "ExactCount", "count": 1});
    world.asking(json!({"name": "r", "firstAvailable": [first, second]}));
    let outcome = world.run();
    assert_eq!(outcome.node(), None);
    assert!(outcome.message().contains(FAILURE), "{}", outcome.message());
}

#[test]
fn all_devices_of_a_node_whose_pool_is_incomplete_fail() {
    let mut world = world([json!([{"name": "d0"}]), json!([{"name": "d0"}])]);
    let slice = world.object(json!({
        "metadata": {"name": "n1-more"},
        "spec": {
            "driver": "d", "nodeName": "n1", "devices": [{"name": "e0"}],
            "pool": {"name": "n1-more", "generation": 1, "resourceSliceCount": 2},
        },
    }));
    world.handle(Input::Slice(Observed::Applied(slice)));
    world
        .asking(json!({"name": "r", "exactly": {"deviceClassName": "c", "allocationMode": "All"}}));
    let outcome = world.run();
    assert_eq!(outcome.node(), None);
    let text = "asks for all devices, but resource pool d/n1-more is currently being updated";
    assert!(outcome.message().contains(text), "{}", outcome.message());
}
