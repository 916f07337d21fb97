use serde_json::{Value, json};

use super::*;

fn taint(value: Value) -> Taint {
    serde_json::from_value(value).unwrap()
}

fn toleration(value: Value) -> Toleration {
    serde_json::from_value(value).unwrap()
}

#[test]
fn tolerations_match_as_in_upstream() {
    let bad = taint(json!({"key": "k", "value": "v", "effect": "NoExecute"}));
    let check = |wanted: bool, value: Value| {
        assert_eq!(
            tolerates(&toleration(value.clone()), &bad),
            wanted,
            "{value}"
        );
    };
    check(true, json!({"operator": "Exists"}));
    check(true, json!({"key": "k", "operator": "Exists"}));
    check(
        true,
        json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}),
    );
    check(
        false,
        json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"}),
    );
    check(true, json!({"key": "k", "value": "v"}));
    check(true, json!({"key": "k", "operator": "Equal", "value": "v"}));
    check(false, json!({"key": "k", "value": "w"}));
    check(false, json!({"key": "other", "operator": "Exists"}));
    check(false, json!({}));
}

#[test]
fn node_selectors_match_labels_and_names() {
    let node: Node =
        serde_json::from_value(json!({"metadata": {"name": "n", "labels": {"a": "1", "b": "x"}}}))
            .unwrap();
    let check = |wanted: bool, term: Value| {
        let spec: PodSpec = serde_json::from_value(json!({
            "containers": [],
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}},
        }))
        .unwrap();
        assert_eq!(affinity_matches(&spec, &node), wanted, "{term}");
    };
    let label = |key: &str, operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
    check(true, label("a", "In", json!(["1", "2"])));
    check(false, label("a", "NotIn", json!(["1", "2"])));
    check(true, label("c", "NotIn", json!(["1"])));
    check(true, label("a", "Gt", json!(["0"])));
    check(false, label("a", "Lt", json!(["1"])));
    check(false, label("b", "Gt", json!(["0"])));
    check(true, label("b", "Exists", Value::Null));
    check(true, label("c", "DoesNotExist", Value::Null));
    check(
        true,
        json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}),
    );
    check(
        false,
        json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["m"]}]}),
    );
    check(false, json!({}));
}
