use serde_json::{Value, json};

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn node(ready: &str, spec: Value) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": "n"},
        "spec": spec,
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }))
    .unwrap()
}

fn shown(taints: &[Taint]) -> Vec<String> {
    taints
        .iter()
        .map(|t| format!("{}:{}", t.key, t.effect))
        .collect()
}

#[test]
fn taints_follow_the_conditions_and_leave_others_alone() {
    let foreign = json!({"taints": [{"key": "example.com/x", "effect": "NoExecute"}]});
    let check = |ready: &str, spec: Value, wanted: &[&str]| {
        assert_eq!(
            shown(&taints(&node(ready, spec), false, at(0))),
            wanted,
            "{ready}"
        );
    };
    check("True", foreign.clone(), &["example.com/x:NoExecute"]);
    check(
        "False",
        foreign,
        &[
            "example.com/x:NoExecute",
            "node.kubernetes.io/not-ready:NoSchedule",
            "node.kubernetes.io/not-ready:NoExecute",
        ],
    );
    check(
        "Unknown",
        json!({}),
        &[
            "node.kubernetes.io/unreachable:NoSchedule",
            "node.kubernetes.io/unreachable:NoExecute",
        ],
    );
    let was_unreachable = json!({"taints": [
        {"key": UNREACHABLE, "effect": "NoSchedule"}, {"key": UNREACHABLE, "effect": "NoExecute"},
    ]});
    check("True", was_unreachable, &[]);
    check(
        "True",
        json!({"unschedulable": true}),
        &["node.kubernetes.io/unschedulable:NoSchedule"],
    );
}

#[test]
fn taints_keep_the_time_they_were_added() {
    let first = taints(&node("False", json!({})), false, at(0));
    let mut later = node("False", json!({}));
    later.spec.as_mut().unwrap().taints = Some(first.clone());
    assert_eq!(taints(&later, false, at(60)), first);
}

#[test]
fn pods_go_when_their_toleration_ends() {
    let tainted = taints(&node("Unknown", json!({})), false, at(0));
    let pod = |tolerations: Value| -> Pod {
        serde_json::from_value(json!({"spec": {"containers": [], "tolerations": tolerations}}))
            .unwrap()
    };
    let due = |tolerations: Value| {
        eviction(&tainted, &pod(tolerations), at(50), &Features::default())
            .map(|t| t.as_second() - at(0).as_second())
    };
    assert_eq!(due(json!([])), Some(0));
    let tolerate = |seconds: Value| json!({"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
    assert_eq!(due(json!([tolerate(json!(300))])), Some(300));
    assert_eq!(
        due(json!([tolerate(json!(300)), tolerate(json!(10))])),
        Some(10)
    );
    assert_eq!(due(json!([tolerate(Value::Null)])), None);
    assert_eq!(
        eviction(&[], &pod(json!([])), at(0), &Features::default()),
        None
    );
}

#[test]
fn comparison_operators_keep_pods_only_with_their_feature() {
    let check = |on: bool, operator: &str, expected: Option<Timestamp>| {
        let toleration = json!({
            "key": "failure-probability", "operator": operator, "value": "5", "effect": "NoExecute",
        });
        let pod = json!({"spec": {"containers": [], "tolerations": [toleration]}});
        let taint = json!({"key": "failure-probability", "value": "2", "effect": "NoExecute"});
        let (taint, pod) = (serde_json::from_value(taint), serde_json::from_value(pod));
        let features = Features::default().with(Feature::TaintTolerationComparisonOperators, on);
        let due = eviction(&[taint.unwrap()], &pod.unwrap(), at(50), &features);
        assert_eq!(due, expected, "{on} {operator}");
    };
    check(true, "Lt", None);
    check(true, "Gt", Some(at(50)));
    check(false, "Lt", Some(at(50)));
}

#[test]
fn tolerated_seconds_begin_with_the_pod_or_when_an_untimed_taint_was_seen() {
    let tolerate =
        json!({"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 10});
    let due = |added: Value, bound: i64| {
        let taint = json!({"key": "k", "effect": "NoExecute", "timeAdded": added});
        let condition = json!({
            "type": "PodScheduled", "status": "True", "lastTransitionTime": crate::controller::clock::rfc3339(at(bound)),
        });
        let pod = json!({
            "spec": {"containers": [], "tolerations": [tolerate]}, "status": {"conditions": [condition]},
        });
        let (taint, pod) = (serde_json::from_value(taint), serde_json::from_value(pod));
        let due = eviction(
            &[taint.unwrap()],
            &pod.unwrap(),
            at(50),
            &Features::default(),
        );
        due.map(|t| t.as_second() - at(0).as_second())
    };
    let added = |second| json!(crate::controller::clock::rfc3339(at(second)));
    assert_eq!(due(added(20), 0), Some(30));
    assert_eq!(due(added(20), 30), Some(40));
    assert_eq!(due(Value::Null, 0), Some(60));
}
