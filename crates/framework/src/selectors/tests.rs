use super::*;
use serde_json::{Value, json};

fn labels(pairs: &[(&str, &str)]) -> LabelMap {
    pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

fn check_labels(selector: Value, with: &[(&str, &str)], expected: bool) {
    let selector: Option<LabelSelector> = serde_json::from_value(selector).expect("fixture");
    assert_eq!(
        Labels::new(selector.as_ref()).matches(Some(&labels(with))),
        expected,
        "{selector:?} on {with:?}"
    );
}

fn check_node(selector: Value, name: &str, with: &[(&str, &str)], expected: bool) {
    let selector: NodeSelector = serde_json::from_value(selector).expect("fixture");
    assert_eq!(
        Nodes::new(&selector).matches(name, &labels(with)),
        expected,
        "{selector:?} on {name} {with:?}"
    );
}

#[test]
fn label_selectors() {
    check_labels(json!(null), &[("a", "b")], false);
    check_labels(json!({}), &[("a", "b")], true);
    check_labels(json!({"matchLabels": {"a": "b"}}), &[("a", "b")], true);
    check_labels(json!({"matchLabels": {"a": "c"}}), &[("a", "b")], false);
    let not_in = json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]});
    check_labels(not_in.clone(), &[], true);
    check_labels(not_in, &[("a", "b")], false);
    let absent = json!({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]});
    check_labels(absent.clone(), &[], true);
    check_labels(absent, &[("a", "")], false);
}

#[test]
fn node_selectors() {
    let term = |op: &str, values: &[&str]| json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "n", "operator": op, "values": values}]}]});
    check_node(term("Gt", &["3"]), "x", &[("n", "4")], true);
    check_node(term("Gt", &["3"]), "x", &[("n", "3")], false);
    check_node(term("Lt", &["3"]), "x", &[("n", "four")], false);
    check_node(term("Exists", &[]), "x", &[("n", "")], true);
    check_node(json!({"nodeSelectorTerms": [{}]}), "x", &[], false);
    check_node(json!({"nodeSelectorTerms": []}), "x", &[], false);
    let by_name = json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["x"]}]}]});
    check_node(by_name.clone(), "x", &[], true);
    check_node(by_name, "y", &[], false);
}

#[test]
fn terms_are_alternatives() {
    let either = json!({"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "a", "operator": "In", "values": ["1"]}]},
        {"matchExpressions": [{"key": "b", "operator": "In", "values": ["1"]}]},
    ]});
    check_node(either.clone(), "x", &[("b", "1")], true);
    check_node(either, "x", &[("b", "2")], false);
}
