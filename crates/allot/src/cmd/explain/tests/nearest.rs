//! The nearest node, which is reported first.

use serde_json::{Value, json};

use super::super::served;
use super::*;

/// A node with that many devices of a driver.
fn with(name: &str, driver: &str, count: usize) -> [Value; 2] {
    let devices = (0..count).map(|i| json!({"name": format!("d{i}")}));
    let mut slice = slice(name, devices.collect());
    slice["spec"]["driver"] = json!(driver);
    [node(name), slice]
}

/// The nodes, and a pod that wants nine devices of driver `d`.
fn cluster(nodes: Vec<[Value; 2]>, request: Value) -> Vec<Value> {
    let mut objects = nodes.concat();
    objects.extend([
        class("device.driver == \"d\""),
        claim("claim", request),
        user(),
    ]);
    objects
}

/// The node that the event names.
fn named(objects: &[Value]) -> String {
    let text = events(objects);
    let (_, rest) = text.split_once("Nearest is node ").expect("a node");
    rest.split(':').next().unwrap_or_default().to_owned()
}

fn report(objects: &[Value]) -> Report {
    Report::new(&mut loaded(objects), "default", "p").expect("a report")
}

#[test]
fn regression_a_node_with_other_devices_is_not_nearest() {
    let nine = request(json!({"count": 9}));
    let of_list = |name: &str, count: u32| {
        json!({"name": name, "deviceClassName": "gpu", "allocationMode": "ExactCount",
            "count": count})
    };
    let list = json!({"name": "r", "firstAvailable": [of_list("x", 10), of_list("y", 9)]});
    for request in [nine, list] {
        let nodes = vec![
            with("a", "e", 20),
            with("b", "e", 8),
            with("c", "d", 8),
            with("d", "d", 8),
            with("e", "d", 0),
        ];
        let objects = cluster(nodes, request);
        let text = explained(&objects);
        let groups = [
            "2 nodes: ",
            "(c, d)",
            "2 nodes: ",
            "(a, b)",
            "1 node: ",
            "(e)",
        ];
        let mut rest = &*text;
        for part in groups {
            let at = rest.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
            rest = &rest[at..];
        }
        let cause = report(&objects).cause().expect("a cause");
        assert_eq!(named(&objects), "c");
        assert_eq!(cause.nearest.as_deref(), Some("c"));
        assert!(
            cause.reason.contains("needs 9 devices: 8 seen"),
            "{cause:?}"
        );
    }
}

/// A node that the pod's selector or affinity excludes had the devices, and was named as if they helped.
#[test]
fn regression_nodes_that_the_pod_excludes_come_last() {
    let terms =
        json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["c"]}]}]);
    let affinity = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
    let wants = [
        ("nodeSelector", json!({"pool": "gpus"})),
        ("affinity", affinity),
    ];
    for (member, value) in wants {
        let nodes = vec![with("a", "d", 9), with("b", "d", 20), with("c", "d", 2)];
        let mut objects = cluster(nodes, request(json!({"count": 9})));
        for object in &mut objects {
            match (object["kind"].as_str(), object["metadata"]["name"].as_str()) {
                (Some("Node"), Some("c")) => {
                    object["metadata"]["labels"] = json!({"pool": "gpus"});
                }
                (Some("Pod"), _) => object["spec"][member] = value.clone(),
                _ => {}
            }
        }
        assert_eq!(named(&objects), "c", "{member}");
        let cause = report(&objects).cause().expect("a cause");
        assert_eq!(cause.nearest.as_deref(), Some("c"), "{member}");
        assert!(
            cause.reason.contains("needs 9 devices: 2 seen"),
            "{cause:?}"
        );
        let text = explained(&objects);
        let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
        assert!(place("(c)") < place("(a, b)"), "{text}");
    }
}

/// Not the reasons of most nodes.
#[test]
fn regression_the_dashboard_has_the_nearest_node() {
    let mut nodes: Vec<[Value; 2]> = Vec::new();
    for i in 0..14 {
        nodes.push(with(&format!("a{i}"), "e", 10 + i));
        nodes.push(with(&format!("b{i}"), "e", 10 + i));
    }
    nodes.push(with("near", "d", 8));
    let objects = cluster(nodes, request(json!({"count": 9})));
    let answer = served::grouped(report(&objects)).expect("JSON");
    assert_eq!(answer["groups"][0]["nodes"], json!(["near"]));
    assert_eq!(named(&objects), "near");
    let groups = answer["groups"].as_array().map(Vec::len);
    assert_eq!((groups, &answer["groupsLeftOut"]), (Some(12), &json!(3)));
}

#[test]
fn regression_pools_that_cannot_be_used_are_named_in_the_list() {
    let mut incomplete = with("a", "d", 9);
    incomplete[1]["spec"]["pool"]["resourceSliceCount"] = json!(2);
    let mut doubled = with("a", "d", 9);
    doubled[1]["spec"]["devices"][1]["name"] = json!("d0");
    for node in [incomplete, doubled] {
        let objects = cluster(vec![node], request(json!({"count": 9})));
        let cause = report(&objects).cause().expect("a cause");
        let pool = "; pool d/a cannot be used: ";
        assert!(cause.reason.contains(pool), "{cause:?}");
    }
}
