//! Pods that have a node, or their devices, and do not start.

use serde_json::{Value, json};

use super::super::Outcome;
use super::super::pending::Pending;
use super::*;

fn check(objects: &[Value], expected: &[&str]) {
    let text = explained(objects);
    for part in expected {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}

/// The pod `p` on node `a`, which waits for its container; with what its node says of drivers.
fn on_node(drivers: Option<&str>) -> Vec<Value> {
    let mut bound = user();
    bound["spec"]["nodeName"] = json!("a");
    bound["status"] = json!({"phase": "Pending", "containerStatuses": [{"name": "c", "image": "x",
        "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": "ContainerCreating"}}}]});
    let mut node = node("a");
    if let Some(drivers) = drivers {
        node["metadata"]["annotations"] = json!({"allot.dev/registered-drivers": drivers});
    }
    vec![
        node,
        bound,
        class("true"),
        held("claim", "a", json!(["x"]), Some("p")),
    ]
}

/// The pod `p` that has no node yet, and its claim, which has device `x` of node `a`.
fn without_node(claim: &Value) -> [Value; 5] {
    let slice = slice("a", json!([{"name": "x"}]));
    [node("a"), slice, class("true"), user(), claim.clone()]
}

/// The status of device `x` with these conditions.
fn reported(conditions: &[Value]) -> Value {
    json!([{"driver": "d", "pool": "a", "device": "x", "conditions": conditions}])
}

fn condition(name: &str, status: &str) -> Value {
    json!({"type": name, "status": status, "reason": "Waits", "message": "for the fabric",
        "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

#[test]
fn a_driver_that_is_not_registered_is_named() {
    let problem = "pod default/p is on node a, and does not start\n    claim default/claim, request r: d/a/x\n";
    check(
        &on_node(Some("e")),
        &[
            problem,
            "  driver d is not registered on node a; there are: e\n",
        ],
    );
    check(
        &on_node(Some("")),
        &["  driver d is not registered on node a; no driver is\n"],
    );
    check(
        &on_node(None),
        &["  driver d publishes no devices for node a any more"],
    );
    let mut with_slices = on_node(None);
    with_slices.push(slice("a", json!([{"name": "x"}])));
    check(&with_slices, &["pod default/p is on node a\n"]);
}

/// A pod that has started and falls over again and again is not well.
#[test]
fn regression_a_container_that_ends_again_and_again_is_told() {
    let mut objects = on_node(Some("d"));
    objects[1]["status"] = json!({"phase": "Running", "containerStatuses": [{"name": "c", "image": "x",
        "imageID": "", "ready": false, "restartCount": 3,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}},
        "lastState": {"terminated": {"exitCode": 127, "message": "no such program\n"}}}]});
    check(
        &objects,
        &[
            "pod default/p is on node a, and not all of its containers run\n",
            "  container c: CrashLoopBackOff: back-off 40s; it ended with 127: no such program\n",
        ],
    );
    objects[1]["status"]["containerStatuses"][0]["state"] = json!({"running": {}});
    check(&objects, &["pod default/p is on node a\n"]);
}

#[test]
fn messages_of_the_kubelet_are_reported() {
    let mut objects = on_node(Some("d"));
    objects.push(
        json!({"apiVersion": "v1", "kind": "Event", "type": "Warning", "count": 12,
        "reason": "FailedPrepareDynamicResources", "message": "the GPU fell off the bus\n",
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p", "uid": "p"}}),
    );
    check(
        &objects,
        &[
            "and does not start\n",
            "  its claims are not prepared\n",
            "  event FailedPrepareDynamicResources (12 times): the GPU fell off the bus\n",
        ],
    );
    let mut objects = on_node(Some("d"));
    objects[1]["status"]["containerStatuses"][0]["state"] = json!({"waiting": {
        "reason": "CreateContainerError", "message": "unresolvable CDI devices"}});
    check(
        &objects,
        &["  container c: CreateContainerError: unresolvable CDI devices\n"],
    );
}

#[test]
fn problems_of_its_node_and_claims_are_reported() {
    let mut objects = on_node(Some("d"));
    objects[0]["status"]["conditions"] =
        json!([{"type": "Ready", "status": "False", "message": "no network"}]);
    objects[3] = held("claim", "a", json!(["x"]), Some("other"));
    check(
        &objects,
        &[
            "  node a is not ready: no network\n",
            "  claim default/claim is not reserved for the pod\n",
        ],
    );
    objects.remove(3);
    check(&objects, &["  there is no claim default/claim\n"]);
    objects.remove(0);
    check(&objects, &["  there is no node a\n"]);
}

#[test]
fn regression_a_pod_that_waits_for_its_devices_is_not_well() {
    let result = json!([{"device": "x", "bindingConditions": ["Ready"]}]);
    let mut claim = held("claim", "a", result, Some("p"));
    for (status, is_ready) in [("False", false), ("True", true)] {
        claim["status"]["devices"] = reported(&[condition("Ready", status)]);
        let mut loaded = loaded(&without_node(&claim));
        let report = Report::new(&mut loaded, "default", "p").expect("a report");
        assert_eq!(report.lacks_nothing(), is_ready, "{report:?}");
        assert_eq!(
            Pending::new(&mut loaded, None).outcome(),
            Outcome::of(is_ready)
        );
    }
}

#[test]
fn binding_conditions_are_named_with_their_devices() {
    let result = json!([{"device": "x", "bindingConditions": ["Attached", "Ready"],
        "bindingFailureConditions": ["Broken"]}]);
    let mut claim = held("claim", "a", result, Some("p"));
    let conditions = [condition("Attached", "True"), condition("Ready", "False")];
    claim["status"]["devices"] = reported(&conditions);
    check(
        &without_node(&claim),
        &[
            "pod default/p waits for its devices to get ready\n",
            "  claim default/claim: device d/a/x waits for the condition Ready: it is not true: Waits: for the fabric\n",
        ],
    );
    claim["status"]["devices"] = reported(&[condition("Broken", "True")]);
    check(
        &without_node(&claim),
        &[
            "  a device of claim default/claim failed: Waits: for the fabric; it will be allocated anew\n",
        ],
    );
}
