use serde_json::{Value, json};

use super::*;

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
