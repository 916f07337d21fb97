use serde_json::json;

use super::*;

fn rules(spec: Value) -> Rules {
    let schema = json!({"type":"object","properties":{"spec":spec}});
    Rules::compile(&Structural::from_json(&schema)).expect("there are rules")
}

fn compiles(rules: &Rules) {
    let texts: Vec<String> = rules
        .errors(&Path::new("s"), &|_| false)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(texts.is_empty(), "{texts:?}");
}

fn check(rules: &Rules, spec: Value, old: Option<Value>, expected: &[&str]) {
    let object = json!({"metadata":{"name":"x"},"spec":spec});
    let old = old.map(|spec| json!({"metadata":{"name":"x"},"spec":spec}));
    let found: Vec<String> = rules
        .validate(&object, old.as_ref(), &Path::root())
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(found, expected, "{object}");
}

#[test]
fn broken_rules_say_their_message() {
    let rules = rules(
        json!({"type":"object","properties":{"min":{"type":"integer"},"max":{"type":"integer"}},
        "x-kubernetes-validations":[
            {"rule":"!has(self.min) || !has(self.max) || self.min <= self.max","message":"min must not exceed max"},
            {"rule":"!has(self.min) || self.min != 7","messageExpression":"string(self.min)"},
            {"rule":"!has(self.max) || self.max < 100","reason":"FieldValueForbidden","fieldPath":".max"}
        ]}),
    );
    compiles(&rules);
    check(&rules, json!({"min":1,"max":2}), None, &[]);
    check(
        &rules,
        json!({"min":3,"max":2}),
        None,
        &["spec: Invalid value: min must not exceed max"],
    );
    check(&rules, json!({"min":7}), None, &["spec: Invalid value: 7"]);
    check(
        &rules,
        json!({"max":100}),
        None,
        &["spec.max: Forbidden: failed rule: !has(self.max) || self.max < 100"],
    );
    // What was broken before and did not change stays.
    check(&rules, json!({"min":7}), Some(json!({"min":7})), &[]);
}

#[test]
fn transition_rules_need_a_value_to_compare_with() {
    let rules = rules(json!({"type":"object","properties":{
        "fixed":{"type":"string","maxLength":20,"x-kubernetes-validations":[{"rule":"self == oldSelf","message":"fixed may not change"}]},
        "grows":{"type":"integer","x-kubernetes-validations":[{"rule":"self >= oldSelf.orValue(0)","optionalOldSelf":true,"message":"only up"}]},
        "parts":{"type":"array","maxItems":5,"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["id"],
            "items":{"type":"object","required":["id"],"properties":{"id":{"type":"string","maxLength":5},
                "size":{"type":"integer","x-kubernetes-validations":[{"rule":"self == oldSelf"}]}}}}
    }}));
    compiles(&rules);
    check(&rules, json!({"fixed":"a"}), None, &[]);
    check(
        &rules,
        json!({"fixed":"b"}),
        Some(json!({"fixed":"a"})),
        &["spec.fixed: Invalid value: \"b\": fixed may not change"],
    );
    check(
        &rules,
        json!({"grows":-1}),
        None,
        &["spec.grows: Invalid value: -1: only up"],
    );
    check(
        &rules,
        json!({"grows":1}),
        Some(json!({"grows":2})),
        &["spec.grows: Invalid value: 1: only up"],
    );
    check(
        &rules,
        json!({"parts":[{"id":"b","size":2},{"id":"a","size":2}]}),
        Some(json!({"parts":[{"id":"a","size":1},{"id":"b","size":2}]})),
        &["spec.parts[1].size: Invalid value: 2: failed rule: self == oldSelf"],
    );
}

#[test]
fn rules_are_refused_where_they_cannot_run() {
    let rules = rules(json!({"type":"object","properties":{
        "a":{"type":"string","x-kubernetes-validations":[{"rule":"self.nothing"},{"rule":"size(self)"}]},
        "b":{"type":"array","items":{"type":"array","items":{"type":"string","x-kubernetes-validations":[{"rule":"self.contains('x')"}]}}}
    }}));
    let texts: Vec<String> = rules
        .errors(&Path::new("s"), &|_| false)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(
        texts[0].contains("x-kubernetes-validations[0].rule: Invalid value:")
            && texts[0].contains("compilation failed: ERROR"),
        "{texts:?}"
    );
    assert!(
        texts[1].ends_with("cel expression must evaluate to a bool"),
        "{texts:?}"
    );
    assert!(
        texts[2].contains("estimated rule cost exceeds budget by factor of more than 100x"),
        "{texts:?}"
    );
}

#[test]
fn property_names_that_are_no_identifiers_are_escaped() {
    let rules = rules(
        json!({"type":"object","properties":{"a-b":{"type":"integer"},"in":{"type":"integer"}},
        "x-kubernetes-validations":[{"rule":"self.a__dash__b < self.__in__"}]}),
    );
    check(&rules, json!({"a-b":1,"in":2}), None, &[]);
    check(
        &rules,
        json!({"a-b":3,"in":2}),
        None,
        &["spec: Invalid value: failed rule: self.a__dash__b < self.__in__"],
    );
}

#[test]
fn rules_under_all_of_see_the_value_as_it_is_declared() {
    let rules = rules(json!({
        "type":"object",
        "properties":{"size":{"type":"integer"},"names":{"type":"array","items":{"type":"string"}}},
        "allOf":[
            {"x-kubernetes-validations":[{"rule":"self.size < 10","message":"too large"}]},
            {"properties":{
                "size":{"x-kubernetes-validations":[{"rule":"self >= oldSelf","message":"must not shrink"}]},
                "names":{"items":{"x-kubernetes-validations":[{"rule":"self.startsWith('a')","message":"begins with a"}]}},
            }},
        ],
    }));
    compiles(&rules);
    check(&rules, json!({"size":3,"names":["ab"]}), None, &[]);
    check(
        &rules,
        json!({"size":12,"names":["b"]}),
        Some(json!({"size":13})),
        &[
            "spec: Invalid value: too large",
            "spec.names[0]: Invalid value: \"b\": begins with a",
            "spec.size: Invalid value: 12: must not shrink",
        ],
    );
}

/// Objects of random definitions, some of them changed, each with the errors that upstream finds or with what it makes of the object.
const RANDOM: &str = include_str!("objects.jsonl");

#[test]
fn random_objects_are_judged_as_upstream_does() {
    use crate::structural::{
        default, prune, prune_nulls, validate, validate_lists, validate_update,
    };
    for line in RANDOM.lines() {
        let case: Value = serde_json::from_str(line).expect("a line of JSON");
        let schema = Structural::from_json(&case["schema"]);
        let read = |object: &Value| {
            let mut object = object.clone();
            prune(&mut object, &schema);
            prune_nulls(&mut object, &schema);
            default(&mut object, &schema);
            object
        };
        let root = Path::root();
        let new = read(&case["new"]);
        let old = Some(&case["old"]).filter(|old| old.is_object()).map(read);
        let mut errors = match &old {
            None => validate(&new, &schema, &root),
            Some(old) => validate_update(&new, old, &schema, &root),
        };
        let repeated = |object: &Value| validate_lists(object, &schema, &root);
        if old.as_ref().is_none_or(|old| repeated(old).is_empty()) {
            errors.extend(repeated(&new));
        }
        let expected: Vec<&str> = case["errors"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(Value::as_str)
            // Whether rules are run on a broken object is decided by the server.
            .filter(|text| !text.contains("some validation rules were not checked"))
            .collect();
        let stopped = case["errors"].as_array().map(Vec::len) != Some(expected.len());
        if !stopped && let Some(rules) = Rules::compile(&schema) {
            errors.extend(rules.validate(&new, old.as_ref(), &root));
        }
        let mut found: Vec<String> = errors.iter().map(ToString::to_string).collect();
        found.sort();
        assert_eq!(found, expected, "{case}");
        if let Some(object) = case["object"].as_object() {
            let mut kept = new.clone();
            kept.as_object_mut().expect("an object").remove("metadata");
            assert_eq!(kept.as_object(), Some(object), "{case}");
        }
    }
}

/// The least size of an element made the type of what it requires, which asked for the least size of its elements: twice the
/// work for each level of lists. 22 levels took 16 seconds, again at each start of the server.
#[test]
fn regression_lists_in_required_fields_cost_the_same_at_each_level() {
    let list = |inner: Value| {
        let element = json!({"type":"object","required":["a"],"properties":{"a":inner}});
        json!({"type":"array","items":element})
    };
    let map = |inner: Value| json!({"type":"object","additionalProperties":inner});
    let rule = json!([{"rule":"self.size() < 3"}]);
    for wrap in [&list as &dyn Fn(Value) -> Value, &|inner| map(list(inner))] {
        let mut nested = (0..30).fold(json!({"type":"string"}), |inner, _| wrap(inner));
        nested["maxItems"] = 2.into();
        nested["maxProperties"] = 2.into();
        nested["x-kubernetes-validations"] = rule.clone();
        let spec = json!({"type":"object","properties":{"a":nested}});
        compiles(&rules(spec));
    }
}
