//! Every reason for which a pod waits: what the scheduler's event and `allot explain` say about it.

use serde_json::{Value, json};

use super::*;

/// What event and explanation have to contain, in this order.
struct Row {
    reason: &'static str,
    objects: Vec<Value>,
    event: &'static [&'static str],
    explain: &'static [&'static str],
}

fn check(row: &Row) {
    let Row {
        reason,
        objects,
        event,
        explain,
    } = row;
    for (what, text, expected) in [
        ("event", events(objects), event),
        ("explain", explained(objects), explain),
    ] {
        let mut rest = &*text;
        for part in *expected {
            let Some(at) = rest.find(part) else {
                panic!("{reason}: the {what} lacks {part:?}:\n{text}");
            };
            rest = &rest[at + part.len()..];
        }
    }
    check_nearest(reason, objects);
    check_tenants(reason, objects);
}

/// The node that the event calls nearest, if it names one.
fn nearest_of(event: &str) -> Option<&str> {
    let (_, rest) = event.split_once("Nearest is node ")?;
    rest.split(':').next()
}

/// Event, explanation, list and JSON name the same node.
fn check_nearest(reason: &str, objects: &[Value]) {
    let report = Report::new(&mut loaded(objects), "default", "p").expect("a report");
    let listed = report.cause().expect("a cause").nearest;
    let value = serde_json::to_value(&report).expect("JSON");
    assert_eq!(
        value["nearest"]["node"].as_str(),
        listed.as_deref(),
        "{reason}"
    );
    let reasons = value["nearest"]["reasons"].as_array();
    assert_eq!(reasons.is_some_and(|r| !r.is_empty()), listed.is_some());
    let event = events(objects);
    if let Some(node) = nearest_of(&event) {
        assert_eq!(Some(node), listed.as_deref(), "{reason}: {event}");
    }
}

/// Whatever others have is another tenant's, and so is what the pod names by mistake: the event names none of it, and
/// the same node.
fn check_tenants(reason: &str, objects: &[Value]) {
    let mut others = objects.to_vec();
    let is_other =
        |o: &&mut Value| o["kind"] == "ResourceClaim" && o["metadata"]["name"] != "claim";
    for claim in others.iter_mut().filter(is_other) {
        let name = claim["metadata"]["name"].as_str().expect("a name");
        claim["metadata"]["name"] = json!(format!("secret-{name}"));
        claim["metadata"]["namespace"] = json!("secret");
        let consumers = claim.pointer_mut("/status/reservedFor");
        for consumer in consumers
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            consumer["name"] = json!("secret-pod");
        }
    }
    let nothing = json!({"devices": {"requests": []}});
    for (kind, name) in [
        ("ResourceClaim", "cliam"),
        ("ResourceClaimTemplate", "claim"),
    ] {
        others.push(dra(kind, name, Some("secret"), nothing.clone()));
    }
    let (own, other) = (events(objects), events(&others));
    assert!(!other.contains("secret"), "{reason}: {other}");
    assert_eq!(nearest_of(&own), nearest_of(&other), "{reason}");
    assert_eq!(own.is_empty(), other.is_empty(), "{reason}");
}

/// Two nodes, of which only `b` has devices; and a pod that uses a claim.
fn cluster(devices: Value, request: Value, more: Vec<Value>) -> Vec<Value> {
    let mut objects = vec![
        node("a"),
        node("b"),
        class("device.driver == \"d\""),
        slice("a", json!([])),
        slice("b", devices),
        claim("claim", request),
        user(),
    ];
    for object in more {
        let same = |o: &Value| {
            o["kind"] == object["kind"] && o["metadata"]["name"] == object["metadata"]["name"]
        };
        objects.retain(|o| !same(o));
        objects.push(object);
    }
    objects
}

#[test]
fn names_that_do_not_exist() {
    let devices = json!([{"name": "x", "attributes": {"memory": {"int": 40}}}]);
    let plain = || cluster(devices.clone(), request(json!({})), Vec::new());
    let with = |object: Value| cluster(devices.clone(), request(json!({})), vec![object]);
    check(&Row {
        reason: "class missing",
        objects: cluster(
            devices.clone(),
            request(json!({"deviceClassName": "gqu"})),
            Vec::new(),
        ),
        event: &[
            "request r: device class gqu does not exist",
            "Device classes that exist: gpu; did you mean gpu?",
        ],
        explain: &[
            "goes to no node: request r: device class gqu does not exist",
            "device classes that exist: gpu; did you mean gpu?",
        ],
    });
    check(&Row {
        reason: "claim missing",
        objects: with(pod("p", json!({"resourceClaimName": "cliam"}))),
        event: &["resourceclaim.resource.k8s.io \"cliam\" not found"],
        explain: &[
            "resourceclaim.resource.k8s.io \"cliam\" not found",
            "there is no ResourceClaim default/cliam; did you mean claim?",
        ],
    });
    check(&Row {
        reason: "template missing",
        objects: with(pod("p", json!({"resourceClaimTemplateName": "claim"}))),
        event: &[],
        explain: &[
            "there is no ResourceClaimTemplate default/claim",
            "use resourceClaimName",
        ],
    });
    check(&Row {
        reason: "CEL error",
        objects: with(class("device.attributes[\"d\"].memroy > 1")),
        event: &["no such key: memroy", "On node b: did you mean memory?"],
        explain: &["nearest: b/x: CEL runtime error: no such key: memroy; did you mean memory?"],
    });
    check(&Row {
        reason: "CEL error, nothing like it",
        objects: with(class("device.attributes[\"d\"].cores > 1")),
        event: &["no such key: cores", "it has d/memory"],
        explain: &["no such key: cores; it has d/memory"],
    });
    let mut objects = plain();
    objects[5]["spec"]["devices"]["constraints"] = json!([{"matchAttribute": "d/root"}]);
    check(&Row {
        reason: "matchAttribute that no device has",
        objects,
        event: &[
            "Nearest is node b: ",
            "0 together under matchAttribute d/root, which no device has",
        ],
        explain: &["0 together under matchAttribute d/root, which no device has"],
    });
}

#[test]
fn devices_that_others_have_or_that_are_tainted() {
    let two = json!([{"name": "x"}, {"name": "y"}]);
    check(&Row {
        reason: "in use",
        objects: cluster(
            two,
            request(json!({})),
            vec![held("full", "b", json!(["x", "y"]), Some("full-2"))],
        ),
        event: &[
            "Nearest is node b: ",
            "2 seen, 0 not in use; nearest is b/x: in use by default/full",
        ],
        explain: &[
            "cannot allocate all claims (b)",
            "2 seen",
            "0 not in use",
            "in use: 2 by pod default/full-2",
            "(a)",
        ],
    });
    let mut mixed = cluster(
        json!([{"name": "x"}, {"name": "y"}]),
        request(json!({"count": 2})),
        vec![held("full", "b", json!(["x"]), Some("full-2"))],
    );
    mixed.push(held("hidden", "b", json!(["y"]), Some("hidden")));
    mixed.last_mut().expect("a claim")["metadata"]["namespace"] = json!("other");
    check(&Row {
        reason: "in use, also by another tenant",
        objects: mixed,
        event: &["Nearest is node b: ", "2 seen, 0 not in use"],
        explain: &["in use: ", "by pod default/full-2", "by pod other/hidden"],
    });
    let tainted =
        json!([{"name": "x", "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}]);
    check(&Row {
        reason: "taint",
        objects: cluster(tainted, request(json!({})), Vec::new()),
        event: &[
            "Nearest is node b: ",
            "taint k=v:NoSchedule is not tolerated",
        ],
        explain: &["nearest: b/x: taint k=v:NoSchedule is not tolerated", "(a)"],
    });
    let gone = json!([{"name": "x", "taints": [{"key": "allot.dev/driver-gone", "effect": "NoSchedule"}]}]);
    check(&Row {
        reason: "driver gone",
        objects: cluster(gone, request(json!({})), Vec::new()),
        event: &["taint allot.dev/driver-gone:NoSchedule is not tolerated"],
        explain: &["is not tolerated: its driver does not run there"],
    });
    let mut objects = cluster(json!([]), request(json!({})), Vec::new());
    objects.retain(|o| o["kind"] != "ResourceSlice");
    check(&Row {
        reason: "driver not running anywhere",
        objects,
        event: &["the node has none"],
        explain: &["class gpu wants devices of driver d, which publishes none: it runs on no node"],
    });
}

#[test]
fn devices_of_which_too_little_is_left() {
    let counters =
        |amount: &str| json!([{"counterSet": "set", "counters": {"memory": {"value": amount}}}]);
    let parts = json!([
        {"name": "x", "consumesCounters": counters("20Gi")},
        {"name": "y", "consumesCounters": counters("25Gi")},
    ]);
    let mut pool = slice("b", parts);
    pool["spec"]["pool"]["resourceSliceCount"] = json!(2);
    let mut sets = slice("b", Value::Null);
    sets["metadata"]["name"] = json!("b-counters");
    sets["spec"]["pool"]["resourceSliceCount"] = json!(2);
    sets["spec"]["sharedCounters"] =
        json!([{"name": "set", "counters": {"memory": {"value": "40Gi"}}}]);
    let taken = held("full", "b", json!(["x"]), Some("full-2"));
    check(&Row {
        reason: "counters",
        objects: cluster(
            json!([]),
            request(json!({})),
            vec![pool.clone(), sets, taken],
        ),
        event: &[
            "Nearest is node b: ",
            "counter set/memory: 20Gi left, it takes 25Gi",
        ],
        explain: &[
            "(b)",
            "nearest: b/y: counter set/memory: 20Gi left, it takes 25Gi",
            "(a)",
        ],
    });
    check(&Row {
        reason: "incomplete pool",
        objects: cluster(json!([]), request(json!({})), vec![pool]),
        event: &[
            "Nearest is node b: ",
            "pool d/b cannot be used: some of its slices are not published yet (1 of 2 are there)",
        ],
        explain: &[
            "(b)",
            "pool d/b cannot be used: some of its slices are not published yet (1 of 2 are there)",
            "(a)",
        ],
    });
    let nic = json!([{"name": "x", "allowMultipleAllocations": true, "capacity": {"bandwidth": {"value": "10G"}}}]);
    let share = json!([{"device": "x", "shareID": "s", "consumedCapacity": {"bandwidth": "8G"}}]);
    check(&Row {
        reason: "capacity",
        objects: cluster(
            nic,
            request(json!({"capacity": {"requests": {"bandwidth": "4G"}}})),
            vec![held("full", "b", share, Some("full-2"))],
        ),
        event: &[
            "Nearest is node b: ",
            "bandwidth 2G left of 10G, request takes 4G",
        ],
        explain: &[
            "(b)",
            "nearest: b/x: bandwidth 2G left of 10G, request takes 4G",
            "(a)",
        ],
    });
}

#[test]
fn claims_that_are_elsewhere_or_not_made() {
    let mut objects = cluster(json!([{"name": "x"}]), request(json!({})), Vec::new());
    objects.retain(|o| o["metadata"]["name"] != "b" && o["kind"] != "ResourceClaim");
    objects.push(held("claim", "b", json!(["x"]), Some("other")));
    check(&Row {
        reason: "claim allocated on another node",
        objects,
        event: &[
            "resourceclaim not available on the node",
            "claim default/claim is allocated on node b",
        ],
        explain: &[
            "resourceclaim not available on the node (a)",
            "claim default/claim is allocated on node b",
        ],
    });
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "default"},
        "spec": {}, "status": {"hard": {"gpu.deviceclass.resource.k8s.io/devices": "1"},
            "used": {"gpu.deviceclass.resource.k8s.io/devices": "1"}}});
    let template = dra(
        "ResourceClaimTemplate",
        "t",
        Some("default"),
        json!({"spec": {"devices": {"requests": [request(json!({}))]}}}),
    );
    let event = json!({"apiVersion": "v1", "kind": "Event", "type": "Warning", "count": 4,
        "reason": "FailedResourceClaimCreation", "message": "exceeded quota: q", "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p", "uid": "p"}});
    check(&Row {
        reason: "quota",
        objects: cluster(
            json!([]),
            request(json!({})),
            vec![
                quota,
                template,
                event,
                pod("p", json!({"resourceClaimTemplateName": "t"})),
            ],
        ),
        // The claim controller says it.
        event: &[],
        explain: &[
            "which a quota does not allow now: exceeded quota: q, requested: gpu.deviceclass",
            "event FailedResourceClaimCreation (4 times): exceeded quota: q",
        ],
    });
}

/// The claim controller waits for the group, which may never be made.
#[test]
fn regression_a_group_that_is_missing_is_named() {
    let template = dra(
        "ResourceClaimTemplate",
        "t",
        Some("default"),
        json!({"spec": {"devices": {"requests": [request(json!({}))]}}}),
    );
    let mut pod = pod("p", json!({"resourceClaimTemplateName": "t"}));
    pod["spec"]["schedulingGroup"] = json!({"podGroupName": "trian"});
    let group = |name: &str, namespace: &str| {
        json!({"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup",
            "metadata": {"name": name, "namespace": namespace, "uid": name},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}}})
    };
    let told = |groups: Vec<Value>| {
        let more = [vec![template.clone(), pod.clone()], groups].concat();
        explained(&cluster(json!([]), request(json!({})), more))
    };
    let missing = "there is no PodGroup default/trian";
    for (groups, expected) in [
        (
            vec![],
            ": make it, or make the pod without spec.schedulingGroup\n",
        ),
        (vec![group("train", "default")], "; did you mean train?\n"),
        (
            vec![group("trian", "other")],
            "; there is one in namespace other\n",
        ),
    ] {
        let text = told(groups);
        assert!(text.contains(&format!("{missing}{expected}")), "{text}");
    }
    let text = told(vec![group("trian", "default")]);
    assert!(text.contains("by the claim controller, which has not done it yet"));
}

/// As events say it.
#[test]
fn regression_all_of_none_is_one_device() {
    let all = request(json!({"allocationMode": "All", "count": null}));
    check(&Row {
        reason: "all devices, and there are none",
        objects: cluster(json!([]), all, Vec::new()),
        event: &["request r needs 1 device, the node has none"],
        explain: &["request r needs 1 device:\n      0 seen\n"],
    });
}

#[test]
fn a_quota_on_allocated_devices_is_told_with_its_numbers() {
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "default"},
        "spec": {"hard": {"gpu.deviceclass.allot.dev/allocated-devices": "0"}}});
    const TEXT: &str = "exceeded quota: q, requested: gpu.deviceclass.allot.dev/allocated-devices=1, \
                used: gpu.deviceclass.allot.dev/allocated-devices=0, \
                limited: gpu.deviceclass.allot.dev/allocated-devices=0";
    check(&Row {
        reason: "quota on allocated devices",
        objects: cluster(json!([{"name": "x"}]), request(json!({})), vec![quota]),
        event: &[TEXT],
        explain: &[TEXT],
    });
}

#[test]
fn a_scheduler_that_does_not_run_is_a_reason() {
    let mut waiting = user();
    waiting["spec"]["schedulerName"] = json!("defualt-scheduler");
    let objects = cluster(json!([{"name": "x"}]), request(json!({})), vec![waiting]);
    check(&Row {
        reason: "no such scheduler",
        objects: objects.clone(),
        event: &[],
        explain: &[
            "goes to no node: no scheduler named defualt-scheduler runs here (schedulerName)\n",
            "no pod of it is on a node, and no event is from it; profiles that are known: \
             default-scheduler; did you mean default-scheduler?\n",
        ],
    });
    // One that has bound a pod or reported an event runs, but its profile is not known.
    let refused = |more: Value| {
        let objects = [objects.clone(), vec![more]].concat();
        let report = Report::new(&mut loaded(&objects), "default", "p");
        report.expect_err("not known").to_string()
    };
    let mut bound = pod("q", json!({"resourceClaimName": "other"}));
    bound["spec"]["schedulerName"] = json!("defualt-scheduler");
    bound["spec"]["nodeName"] = json!("a");
    let unknown = "pod default/p is for the scheduler defualt-scheduler, whose profile is not known here: \
        --config FILE with that profile";
    assert_eq!(refused(bound), unknown);
    let event = json!({"apiVersion": "v1", "kind": "Event", "type": "Warning",
        "reason": "FailedScheduling", "message": "queue is full", "metadata": {"name": "e"},
        "source": {"component": "defualt-scheduler"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p", "uid": "p"}});
    assert_eq!(
        refused(event),
        format!("{unknown}; it said of p: queue is full")
    );
}

/// Nodes that differ in numbers only have the same reason.
#[test]
fn equal_reasons_are_one_line() {
    let mut objects = cluster(
        json!([{"name": "x"}, {"name": "y"}]),
        request(json!({})),
        vec![
            slice("a", json!([{"name": "x"}])),
            held("one", "a", json!(["x"]), Some("full-1")),
            held("two", "b", json!(["x", "y"]), Some("full-2")),
        ],
    );
    let text = explained(&objects);
    assert!(
        text.contains("  2 nodes: cannot allocate all claims (a, b)\n"),
        "{text}"
    );
    // Whichever has more to offer comes first, whatever the order of names and numbers.
    objects.push(node("c"));
    let text = explained(&objects);
    let (near, far) = (text.find("2 nodes: "), text.find("1 node: "));
    assert!(near.is_some() && near < far, "{text}");
}
