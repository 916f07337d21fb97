use k8s_openapi::api::core::v1 as core;
use serde_json::{Value, json};

use super::*;

fn matches(terms: Value) -> Result<bool, NodeSelectorError> {
    let selector: core::NodeSelector =
        serde_json::from_value(json!({"nodeSelectorTerms": terms})).unwrap();
    let node = Node::new("n1", [("zone", "a"), ("gpus", "4")]);
    NodeSelector::compile(&selector).map(|s| s.matches(&node))
}

fn expression(key: &str, operator: &str, values: Value) -> Result<bool, NodeSelectorError> {
    matches(json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]))
}

#[test]
fn operators() {
    for (key, operator, values, expected) in [
        ("zone", "In", json!(["b", "a"]), true),
        ("zone", "In", json!(["b"]), false),
        ("none", "In", json!(["b"]), false),
        ("zone", "NotIn", json!(["b"]), true),
        ("none", "NotIn", json!(["b"]), true),
        ("zone", "Exists", json!(null), true),
        ("none", "Exists", json!(null), false),
        ("none", "DoesNotExist", json!(null), true),
        ("gpus", "Gt", json!(["3"]), true),
        ("gpus", "Gt", json!(["4"]), false),
        ("gpus", "Lt", json!(["5"]), true),
        ("zone", "Lt", json!(["5"]), false),
    ] {
        assert_eq!(
            expression(key, operator, values),
            Ok(expected),
            "{key} {operator}"
        );
    }
}

#[test]
fn one_term_is_enough_and_empty_terms_match_nothing() {
    let zone = |value: &str| json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [value]}]});
    assert_eq!(matches(json!([zone("b"), zone("a")])), Ok(true));
    assert_eq!(matches(json!([])), Ok(false));
    assert_eq!(matches(json!([{}])), Ok(false));
    assert_eq!(matches(json!([{}, zone("a")])), Ok(true));
}

#[test]
fn fields_are_the_name() {
    let name = |value: &str| json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [value]}]}]);
    assert_eq!(matches(name("n1")), Ok(true));
    assert_eq!(matches(name("n2")), Ok(false));
}

#[test]
fn invalid_node_selectors_have_upstreams_errors() {
    assert_eq!(
        expression("zone", "Like", json!(["a"]))
            .unwrap_err()
            .to_string(),
        "failed to parse node selector &NodeSelector{NodeSelectorTerms:[]NodeSelectorTerm{NodeSelectorTerm{MatchExpressions:[]NodeSelectorRequirement{NodeSelectorRequirement{Key:zone,Operator:Like,Values:[a],},},MatchFields:[]NodeSelectorRequirement{},},},}: nodeSelectorTerms[0].matchExpressions[0].operator: Invalid value: \"Like\": not a valid selector operator"
    );
    for (operator, values, reason) in [
        ("In", json!([]), RequirementError::NoValues),
        (
            "Exists",
            json!(["a", "b"]),
            RequirementError::Values(vec!["a".into(), "b".into()]),
        ),
        ("Gt", json!(["x"]), RequirementError::NotAnInteger),
        ("Lt", json!([]), RequirementError::NotOneValue),
    ] {
        let error = expression("zone", operator, values).unwrap_err();
        assert_eq!(error.reason, reason, "{operator}");
    }
    let values = RequirementError::Values(vec!["a".into(), "b".into()]);
    assert_eq!(
        values.to_string(),
        r#".values: Invalid value: ["a","b"]: values set must be empty for exists and does not exist"#
    );
}
