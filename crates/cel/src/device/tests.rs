use serde_json::json;

use super::*;

mod quick;

#[test]
fn names_without_a_domain_belong_to_the_driver() {
    let device = Device::from_json(
        "dra.example.com",
        &json!({
            "attributes": {
                "model": {"string": "a"},
                "other.example.com/numa": {"int": 1},
                "list": {"ints": [1, 2]},
            },
            "capacity": {"memory": {"value": "1Gi"}},
        }),
    );
    assert_eq!(
        device.attribute("dra.example.com", "model"),
        Some(&Attribute::String("a".into()))
    );
    assert_eq!(
        device.attribute_by_name("dra.example.com/model"),
        device.attribute_by_name("model")
    );
    assert_eq!(
        device.attribute("other.example.com", "numa"),
        Some(&Attribute::Int(1))
    );
    assert_eq!(
        device.capacity("dra.example.com", "memory"),
        Some(&"1Gi".parse().unwrap())
    );
    assert_eq!(device.attributes().count(), 3);
    assert!(!device.allow_multiple_allocations());
}

#[test]
fn what_cannot_be_read_is_reported_by_the_evaluation() {
    let device = |attribute| Device::from_json("d", &json!({"attributes": {"a": attribute}}));
    assert_eq!(
        device(json!({"version": "1"})).problem(true).unwrap(),
        "attribute a: parse semantic version: No Major.Minor.Patch elements found"
    );
    assert_eq!(
        device(json!({})).problem(true).unwrap(),
        "attribute a: unsupported attribute value"
    );
    assert_eq!(device(json!({"ints": [1]})).problem(true), None);
    assert_eq!(
        device(json!({"ints": [1]})).problem(false).unwrap(),
        "attribute a: unsupported attribute value"
    );
}

fn sample() -> Device {
    Device::from_json(
        "dra.example.com",
        &json!({
            "attributes": {
                "name": {"string": "fish"}, "n": {"int": 3}, "b": {"bool": true}, "v": {"version": "1.2.3"},
                "list": {"strings": ["a", "b"]}, "other.example.com/x": {"string": "y"},
            },
            "capacity": {"memory": {"value": "1Gi"}},
        }),
    )
}

/// Result, static cost and cost of a selector on the sample device, as Kubernetes 1.36 has them.
fn check(expression: &str, result: Result<bool, &str>, max_cost: u64, cost: u64) {
    let selector = compile(expression, &Options::default())
        .unwrap_or_else(|error| panic!("{expression}: {error}"));
    let (actual, actual_cost) = selector.matches_with_cost(&sample());
    assert_eq!(
        actual,
        result.map_err(|text| EvalError(text.to_owned())),
        "{expression}"
    );
    assert_eq!(
        (selector.max_cost(), actual_cost),
        (max_cost, cost),
        "{expression}"
    );
}

#[test]
fn results_and_costs_are_upstreams() {
    let own = "device.attributes[\"dra.example.com\"]";
    check("device.driver == \"dra.example.com\"", Ok(true), 4, 4);
    check(&format!("{own}.n + 1 == 4"), Ok(true), 6, 6);
    check(
        &format!("{own}.name in [\"fish\", \"bird\"]"),
        Ok(true),
        16,
        4,
    );
    check(&format!("{own}.nope == 1 || true"), Ok(true), 5, 5);
    check(&format!("{own}.nope == 1"), Err("no such key: nope"), 5, 5);
    check(&format!("{own}.name.foo"), Err("no such key: foo"), 4, 5);
    check(
        &format!("{own}.v == \"1.2.3\""),
        Err("no such overload"),
        5,
        5,
    );
    check(
        &format!("{own}.n.isGreaterThan(quantity(\"1\"))"),
        Err("no such overload: isGreaterThan(int, kubernetes.Quantity)"),
        6,
        6,
    );
    check(
        &format!("{own}.list.exists(i, v, v == \"b\")"),
        Ok(true),
        389,
        17,
    );
    check("device.attributes[\"nope\"].size() == 0", Ok(true), 5, 5);
    check("\"nope\" in device.attributes", Ok(false), 3, 3);
    check("has(device.attributes[\"nope\"].x)", Ok(false), 3, 3);
    check(
        &format!("{own}.n"),
        Err(
            "CEL result of type int could not be converted to bool: unsupported type conversion from 'int' to bool",
        ),
        4,
        4,
    );
}

#[test]
fn features_change_the_environment() {
    let none = Options {
        consumable_capacity: false,
        list_type_attributes: false,
        ..Options::default()
    };
    let error = compile("device.allowMultipleAllocations", &none)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("undefined field 'allowMultipleAllocations'"),
        "{error}"
    );
    let error = compile("device.attributes['a'].b.includes(1)", &none)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("undeclared reference to 'includes'"),
        "{error}"
    );
    let error = compile("device.attributes['a']", &none)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "must evaluate to bool or the unknown type, not map(string, google.protobuf.Any)"
    );
}

/// The whole list was made before its cost was known.
#[test]
fn regression_a_range_without_end_costs_too_much() {
    for call in ["size() > 0", "sum() > 0", "map(x, x).size() > 0"] {
        let expression = format!("lists.range(9223372036854775807).{call}");
        let selector = compile(&expression, &Options::default()).unwrap();
        let error = selector.matches(&sample()).unwrap_err().to_string();
        assert_eq!(
            error, "operation cancelled: actual cost limit exceeded",
            "{expression}"
        );
    }
}

#[test]
fn a_selector_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Selector>();
    shared::<Device>();
}

proptest::proptest! {
    /// Whatever compiles evaluates without panic and twice the same.
    #[test]
    fn evaluation_is_deterministic(words in proptest::collection::vec(proptest::sample::select(vec![
        "device.driver", "device.attributes", "device.attributes['dra.example.com'].n", "'fish'", "1", "-2", "1.5", "true",
        "device.attributes['dra.example.com'].list", "device.capacity['dra.example.com'].memory", "quantity('1')",
        "[1, 2]", "{'a': 1}", ".size()", ".all(x, x != 1)", ".exists(x, x == 'a')", ".map(x, x)", ".startsWith('f')",
        ".compareTo(quantity('1'))", ".?a", ".orValue(2)", "[0]", "['a']", " == ", " + ", " && ", " || ", " < ", " in ",
        " ? ", " : ", "!", "(", ")", "size(", "string(", "cel.bind(y, 1, y)", ".matches('^f')", ".reverse()",
    ]), 1..9)) {
        let expression = words.concat();
        if let Ok(selector) = compile(&expression, &Options::default()) {
            let device = sample();
            let (first, cost) = selector.matches_with_cost(&device);
            proptest::prop_assert_eq!((first, cost), selector.matches_with_cost(&device));
        }
    }
}
