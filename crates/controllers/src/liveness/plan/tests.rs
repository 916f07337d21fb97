use super::*;

fn slice(spec: Value) -> ResourceSlice {
    let mut full = json!({"driver": "d.example.com", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}});
    for (key, value) in spec.as_object().unwrap() {
        full[key.as_str()] = value.clone();
    }
    serde_json::from_value(json!({"metadata": {"name": "s"}, "spec": full})).unwrap()
}

fn node(ready: Option<&str>, drivers: Option<&str>) -> Option<Arc<Node>> {
    let mut node = json!({"metadata": {"name": "n"}});
    if let Some(ready) = ready {
        node["status"]["conditions"] = json!([{"type": "Ready", "status": ready}]);
    }
    if let Some(drivers) = drivers {
        node["metadata"]["annotations"] = json!({DRIVERS: drivers});
    }
    Some(Arc::new(serde_json::from_value(node).unwrap()))
}

fn dead(spec: &Value, node: Option<Arc<Node>>) -> Vec<usize> {
    dead_devices(&slice(spec.clone()), |_| node.clone())
        .into_iter()
        .collect()
}

#[test]
fn devices_die_with_their_node_or_driver() {
    let own = json!({"nodeName": "n", "devices": [{"name": "a"}, {"name": "b"}]});
    assert_eq!(dead(&own, node(Some("True"), None)), Vec::<usize>::new());
    assert_eq!(
        dead(&own, node(None, None)),
        Vec::<usize>::new(),
        "a node that has not reported yet"
    );
    assert_eq!(dead(&own, None), [0, 1]);
    assert_eq!(dead(&own, node(Some("Unknown"), None)), [0, 1]);
    assert_eq!(
        dead(
            &own,
            node(Some("True"), Some("other.example.com, d.example.com"))
        ),
        Vec::<usize>::new()
    );
    assert_eq!(dead(&own, node(Some("True"), Some(""))), [0, 1]);
    // Devices that several nodes can reach do not depend on one.
    assert_eq!(
        dead(&json!({"allNodes": true, "devices": [{"name": "a"}]}), None),
        Vec::<usize>::new()
    );
    let mixed = json!({"perDeviceNodeSelection": true, "devices": [{"name": "a", "nodeName": "n"}, {"name": "b", "allNodes": true}]});
    assert_eq!(dead(&mixed, None), [0]);
}

#[test]
fn only_our_taint_is_set_and_removed() {
    let devices = json!([{"name": "a", "taints": [{"key": "k", "effect": "NoExecute"}]}, {"name": "b", "future": 1}]);
    let both: BTreeSet<usize> = [0, 1].into();
    let tainted = with_taints(&devices, &both, "now");
    assert_eq!(
        tainted[0]["taints"][1],
        json!({"key": TAINT, "effect": "NoSchedule", "timeAdded": "now"})
    );
    assert_eq!(tainted[1]["taints"].as_array().unwrap().len(), 1);
    assert_eq!(with_taints(&tainted, &both, "later"), tainted);
    assert_eq!(with_taints(&tainted, &BTreeSet::new(), "later"), devices);
}

#[test]
fn a_rule_stands_for_the_taints_of_a_node_only() {
    let own = rule(
        &slice(json!({"nodeName": "n"})),
        "resource.k8s.io/v1beta2",
        "now",
    )
    .unwrap();
    assert_eq!(own["metadata"]["name"], "allot-driver-gone-s");
    assert_eq!(
        own["spec"],
        json!({
            "deviceSelector": {"driver": "d.example.com", "pool": "p"},
            "taint": {"key": TAINT, "effect": "NoSchedule", "timeAdded": "now"},
        })
    );
    let shared = slice(json!({"perDeviceNodeSelection": true}));
    assert_eq!(rule(&shared, "resource.k8s.io/v1beta2", "now"), None);
}

#[test]
fn a_simulated_node_serves_drivers_that_never_registered() {
    let own = json!({"nodeName": "n", "devices": [{"name": "a"}]});
    let check = |drivers: &str, expected: &[usize]| {
        let found = dead(&own, node(Some("True"), Some(drivers)));
        assert_eq!(found, expected, "{drivers}");
    };
    check("*", &[]);
    check("other.example.com,*", &[]);
    check("!other.example.com,*", &[]);
    check("!d.example.com,*", &[0]);
    check("d.example.com,*", &[]);
    check("!d.example.com", &[0]);
}
