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

/// `explain` said that such a pod had finished, and that such a claim waits for a pod; nothing of the finalizer.
#[test]
fn regression_what_keeps_a_deleted_object_is_told() {
    let deleted = |object: &mut Value, finalizer: &str| {
        object["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
        object["metadata"]["finalizers"] = json!([finalizer]);
    };
    let mut objects = on_node(Some("d"));
    objects[1]["status"] = json!({"phase": "Succeeded"});
    deleted(&mut objects[1], "example.com/mine");
    let kept = "and stays until the finalizer example.com/mine is removed by whatever set it";
    check(
        &objects,
        &["pod default/p has finished\n  it was deleted ", kept],
    );

    let of_claim = |claim: &Value| {
        let mut out = Vec::new();
        let mut loaded = loaded(std::slice::from_ref(claim));
        super::super::claim::explain(&mut loaded, "default", "claim", &mut out, false).unwrap();
        String::from_utf8(out).unwrap()
    };
    let mut waiting = claim("claim", request(json!({})));
    deleted(&mut waiting, "example.com/mine");
    let text = of_claim(&waiting);
    assert!(
        text.starts_with("claim default/claim is not allocated\n  it was deleted "),
        "{text}"
    );
    assert!(text.contains(kept), "{text}");
    let mut used = held("claim", "a", json!(["x"]), Some("p"));
    deleted(&mut used, "resource.kubernetes.io/delete-protection");
    let text = of_claim(&used);
    assert!(
        text.contains("until no pod is left that it is reserved for"),
        "{text}"
    );
}

/// A pod stayed Terminating because its driver was away, or ran on a node of which nothing was heard, and `explain` had nothing
/// to say, with status 0.
#[test]
fn regression_a_pod_that_cannot_end_or_is_cut_off_is_told() {
    let mut objects = on_node(Some(""));
    objects[1]["status"] = json!({"phase": "Running"});
    check(&objects, &["pod default/p is on node a\n"]);
    objects[1]["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
    check(
        &objects,
        &[
            "pod default/p is on node a, and does not end\n",
            "  driver d is not registered on node a; no driver is\n",
            "  it was deleted ",
        ],
    );
    objects[1]["metadata"]["deletionTimestamp"] = Value::Null;
    objects[0]["status"]["conditions"] = json!([{"type": "Ready", "status": "Unknown",
        "message": "Kubelet stopped posting node status."}]);
    check(
        &objects,
        &[
            "pod default/p is on node a, and is cut off\n",
            "  node a is not ready: Kubelet stopped posting node status.\n",
        ],
    );
}

/// A pod whose volumes could not be made on a full disk was on its node, and no pod waited.
#[test]
fn regression_volumes_that_cannot_be_mounted_are_told() {
    let mut objects = on_node(Some("d"));
    let message = "MountVolume.SetUp failed for volume \"v\" : No space left on device";
    objects.push(json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"},
        "type": "Warning", "reason": "FailedMount", "message": message, "lastTimestamp": "2026-01-01T00:00:00Z",
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p", "uid": "p"}}));
    check(
        &objects,
        &[
            "pod default/p is on node a, and does not start\n",
            "  its volumes are not mounted\n",
            message,
        ],
    );
}

/// The list had `configmap "x" not found: Error: configmap "x" not found`.
#[test]
fn regression_the_event_of_a_container_is_not_repeated() {
    let mut objects = on_node(Some("d"));
    let waiting =
        json!({"reason": "CreateContainerConfigError", "message": "configmap \"x\" not found"});
    objects[1]["status"]["containerStatuses"][0]["state"]["waiting"] = waiting;
    let event = |message: &str| {
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"}, "type": "Warning",
            "reason": "Failed", "message": message, "count": 3, "lastTimestamp": "2026-01-01T00:00:00Z",
            "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p", "uid": "p"}})
    };
    let cause = |message: &str| {
        let mut objects = objects.clone();
        objects.push(event(message));
        let report = Report::new(&mut loaded(&objects), "default", "p").unwrap();
        report.cause().unwrap().reason
    };
    let problem = "container c: CreateContainerConfigError: configmap \"x\" not found";
    assert_eq!(cause("Error: configmap \"x\" not found"), problem);
    assert_eq!(
        cause("the disk is full"),
        format!("{problem}: the disk is full")
    );
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
