use allot_apimachinery::field::{ErrorList, Path};
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn gadget() -> Structural {
    Structural::from_json(&json!({
        "type":"object","required":["spec"],"properties":{"spec":{"type":"object","required":["size"],"properties":{
            "size":{"type":"integer","minimum":1,"maximum":10},
            "colour":{"type":"string","enum":["red","blue"],"default":"red"},
            "name":{"type":"string","maxLength":5,"pattern":"^[a-z]*$"},
            "parts":{"type":"array","maxItems":3,"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["id"],
                "items":{"type":"object","required":["id"],"properties":{"id":{"type":"string"},"weight":{"type":"number","default":0.5}}}},
            "free":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
            "either":{"x-kubernetes-int-or-string":true},
            "tags":{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"set"},
            "when":{"type":"string","format":"date-time"},
            "maybe":{"type":"string","nullable":true},
            "odd":{"type":"integer","multipleOf":2,"not":{"enum":[4]}},
            "map":{"type":"object","maxProperties":1,"additionalProperties":{"type":"string"}}
        }}}
    }))
}

fn check(spec: Value, expected: &[&str]) {
    let object = json!({"spec":spec});
    let schema = gadget();
    let mut found: Vec<String> = validate(&object, &schema, &Path::root())
        .iter()
        .map(ToString::to_string)
        .collect();
    found.extend(
        validate_lists(&object, &schema, &Path::root())
            .iter()
            .map(ToString::to_string),
    );
    assert_eq!(found, expected, "{object}");
}

#[test]
fn errors_have_upstreams_texts() {
    check(json!({"size":1}), &[]);
    check(json!({}), &["spec.size: Required value"]);
    check(
        json!({"size":0}),
        &["spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"],
    );
    check(
        json!({"size":11}),
        &["spec.size: Invalid value: 11: spec.size in body should be less than or equal to 10"],
    );
    check(
        json!({"size":"x"}),
        &[
            "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"",
        ],
    );
    check(json!({"size":1.0}), &[]);
    check(
        json!({"size":1,"colour":"green"}),
        &["spec.colour: Unsupported value: \"green\": supported values: \"red\", \"blue\""],
    );
    check(
        json!({"size":1,"name":"TOOLONG"}),
        &["spec.name: Too long: may not be more than 5 bytes"],
    );
    check(
        json!({"size":1,"name":"ABC"}),
        &["spec.name: Invalid value: \"ABC\": spec.name in body should match '^[a-z]*$'"],
    );
    check(
        json!({"size":1,"parts":[{"id":"a"},{"id":"b"},{"id":"c"},{"id":"d"}]}),
        &["spec.parts: Too many: 4: must have at most 3 items"],
    );
    check(
        json!({"size":1,"parts":[{"id":"a"},{"id":"a"}]}),
        &["spec.parts[1]: Duplicate value: {\"id\":\"a\"}"],
    );
    check(
        json!({"size":1,"tags":["a","a","a"]}),
        &["spec.tags[1]: Duplicate value: \"a\""],
    );
    check(
        json!({"size":1,"parts":[{"weight":1}]}),
        &["spec.parts[0].id: Required value"],
    );
    check(
        json!({"size":1,"either":true}),
        &[
            "spec.either: Invalid value: \"boolean\": spec.either in body must be of type integer,string: \"boolean\"",
        ],
    );
    check(
        json!({"size":1,"when":"yesterday"}),
        &[
            "spec.when: Invalid value: \"yesterday\": spec.when in body must be of type date-time: \"yesterday\"",
        ],
    );
    check(
        json!({"size":1,"odd":3}),
        &["spec.odd: Invalid value: 3: spec.odd in body should be a multiple of 2"],
    );
    check(
        json!({"size":1,"odd":4}),
        &["<nil>: Invalid value: \"\": \"spec.odd\" must not validate the schema (not)"],
    );
    check(json!({"size":1,"maybe":null}), &[]);
}

#[test]
fn regression_limits_of_floats_have_an_exponent_from_a_million_on() {
    let schema = Structural::from_json(&json!({
        "type": "object",
        "properties": {
            "most": {"type": "number", "maximum": 1_000_000},
            "least": {"type": "number", "minimum": 0.00001},
            "step": {"type": "number", "multipleOf": 1_234_567.5},
            "whole": {"type": "integer", "maximum": 1_000_000},
        },
    }));
    let check = |value: Value, expected: &str| {
        let errors: Vec<String> = validate(&value, &schema, &Path::root())
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(errors, [expected], "{value}");
    };
    check(
        json!({"most": 123_456_789.5}),
        "most: Invalid value: 1.234567895e+08: most in body should be less than or equal to 1e+06",
    );
    check(
        json!({"least": 0.0000025}),
        "least: Invalid value: 2.5e-06: least in body should be greater than or equal to 1e-05",
    );
    check(
        json!({"step": 0.5}),
        "step: Invalid value: 0.5: step in body should be a multiple of 1.2345675e+06",
    );
    check(
        json!({"whole": 1_000_001}),
        "whole: Invalid value: 1000001: whole in body should be less than or equal to 1000000",
    );
}

#[test]
fn what_did_not_change_is_not_checked_again() {
    let schema = gadget();
    let old = json!({"spec":{"size":50,"parts":[{"id":7},{"id":"b"}]}});
    let errors = |new: Value| -> Vec<String> {
        validate_update(&new, &old, &schema, &Path::root())
            .iter()
            .map(|error| error.field.clone())
            .collect()
    };
    assert_eq!(errors(old.clone()), Vec::<String>::new());
    assert_eq!(
        errors(json!({"spec":{"size":50,"name":"ABC","parts":[{"id":7},{"id":"b"}]}})),
        ["spec.name"]
    );
    assert_eq!(
        errors(json!({"spec":{"size":51,"parts":[{"id":"b"},{"id":7}]}})),
        ["spec.size"]
    );
}

#[test]
fn unknown_fields_go_and_are_named() {
    let mut object = json!({"apiVersion":"a/v1","kind":"K","metadata":{"name":"x"},"status":{},
        "spec":{"size":1,"unknown":{"a":1},"free":{"any":[1]},"parts":[{"id":"a","more":1}],"map":{"a":"b"}}});
    assert_eq!(
        prune(&mut object, &gadget()),
        ["spec.parts[0].more", "spec.unknown", "status"]
    );
    assert_eq!(
        object,
        json!({"apiVersion":"a/v1","kind":"K","metadata":{"name":"x"},
            "spec":{"size":1,"free":{"any":[1]},"parts":[{"id":"a"}],"map":{"a":"b"}}})
    );
}

#[test]
fn defaults_fill_what_is_absent_or_null() {
    let mut object =
        json!({"spec":{"size":1,"colour":null,"name":null,"maybe":null,"parts":[{"id":"a"}]}});
    prune_nulls(&mut object, &gadget());
    default(&mut object, &gadget());
    assert_eq!(
        object,
        json!({"spec":{"size":1,"colour":"red","maybe":null,"parts":[{"id":"a","weight":0.5}]}})
    );
}

#[test]
fn nulls_in_maps_go_as_those_in_fields() {
    let schema = |values: serde_json::Value| {
        let whole = json!({"type": "object", "additionalProperties": values});
        Structural::from_json(&whole)
    };
    for (values, left) in [
        (json!({"type": "string"}), json!({"b": "x"})),
        (
            json!({"type": "string", "nullable": true}),
            json!({"a": null, "b": "x"}),
        ),
    ] {
        let mut object = json!({"a": null, "b": "x"});
        prune_nulls(&mut object, &schema(values));
        assert_eq!(object, left);
    }
}

#[test]
fn string_formats_are_validated() {
    for (name, good, bad) in [
        ("date-time", "2024-01-01T00:00:00Z", "2024-01-01"),
        ("date", "2024-02-29", "2023-02-29"),
        ("duration", "1h30m", "1 fortnight"),
        ("ipv4", "10.0.0.1", "10.0.0.256"),
        ("ipv6", "fd00::1", "10.0.0.1"),
        ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123"),
        ("mac", "00:11:22:33:44:55", "00:11:22"),
        ("byte", "eA==", "e"),
        ("hostname", "a.example.com", "-a"),
        ("email", "a@example.com", "a"),
        ("uri", "https://example.com", "example com"),
        ("hexcolor", "#fff", "#ff"),
        ("isbn", "978-0-306-40615-7", "978-0-306-40615-8"),
        ("creditcard", "4111111111111111", "4111111111111112"),
        ("unheard-of", "x", ""),
    ] {
        assert!(format::check(name, good), "{name} {good}");
        assert!(bad.is_empty() || !format::check(name, bad), "{name} {bad}");
    }
}

fn trees() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        (0..20i64).prop_map(|n| json!(n)),
        "[a-z]{0,3}".prop_map(|s| json!(s))
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        let key = prop_oneof![
            Just("size"),
            Just("colour"),
            Just("spec"),
            Just("parts"),
            Just("free"),
            Just("x")
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map(key.prop_map(str::to_owned), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn pruning_and_defaulting_settle(mut object in trees()) {
        let schema = gadget();
        prune(&mut object, &schema);
        prop_assert!(prune(&mut object, &schema).is_empty());
        prune_nulls(&mut object, &schema);
        default(&mut object, &schema);
        let once = object.clone();
        default(&mut object, &schema);
        prop_assert_eq!(object, once);
    }
}

#[test]
fn embedded_objects_say_what_they_are() {
    let schema = Structural::from_json(&json!({"type": "object", "properties": {
        "one": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
        "all": {"type": "array", "items": {"type": "object", "x-kubernetes-embedded-resource": true}},
    }}));
    let check = |object: Value, expected: &[&str]| {
        let errors = validate_embedded(&object, &schema, &Path::root(), |_, _| ErrorList::new());
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, expected, "{object}");
    };
    check(json!({"one": {"apiVersion": "v1", "kind": "Pod"}}), &[]);
    check(
        json!({"one": {}}),
        &["one.apiVersion: Required value", "one.kind: Required value"],
    );
    check(
        json!({"all": [{"apiVersion": "a/b/c", "kind": ""}]}),
        &[
            "all[0].apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
            "all[0].kind: Invalid value: \"\": must not be empty",
        ],
    );
}

#[test]
fn numbers_of_a_set_are_told_apart_as_upstream_does() {
    let schema = Structural::from_json(&json!({
        "type": "object", "properties": {
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "number"}},
            "any": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}},
            "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "number"}}}},
        },
    }));
    // What its own functions say.
    for (object, expected) in [
        (r#"{"set":[1,1.0]}"#, 0),
        (r#"{"set":[1.0,1]}"#, 0),
        (r#"{"set":[1,1,1]}"#, 1),
        (r#"{"set":[1.5,1.50]}"#, 1),
        (r#"{"set":[1e0,1.0]}"#, 1),
        (r#"{"set":[null,null]}"#, 1),
        (r#"{"set":[9223372036854775808,9223372036854775809]}"#, 1),
        (r#"{"map":[{"k":1},{"k":1.0}]}"#, 0),
        (r#"{"map":[{"k":1.0},{"k":1.0,"v":2}]}"#, 1),
        (r#"{"any":[{"a":1},{"a":1.0}]}"#, 1),
        (r#"{"any":[{"a":1},{"a":2}]}"#, 0),
    ] {
        let value: Value = serde_json::from_str(object).unwrap();
        let errors = validate_lists(&value, &schema, &Path::root());
        assert_eq!(errors.len(), expected, "{object}: {errors:?}");
    }
}

/// Any number of values may be wrong below a key that is as long as a body: the errors took gigabytes and minutes.
#[test]
fn regression_a_long_key_is_not_repeated_without_a_bound() {
    let wrong = json!({"type":"string","maxLength":1,"enum":["a","b"]});
    let map = |of: Value| json!({"type":"object","additionalProperties":of});
    let list = json!({"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}});
    let schema =
        json!({"type":"object","properties":{"values":map(map(wrong)),"sets":map(map(list))}});
    let schema = Structural::from_json(&schema);
    let key = "k".repeat(200_000);
    let each = |value: Value| -> Value {
        let members = (0..20_000).map(|at| (format!("a{at}"), value.clone()));
        members.collect::<serde_json::Map<_, _>>().into()
    };
    let size = |errors: &ErrorList| errors.iter().map(|it| it.to_string().len()).sum::<usize>();
    for value in [json!(1), json!("xx"), json!(null), json!([])] {
        let object = json!({"values":{&key:each(value.clone())}});
        let errors = validate(&object, &schema, &Path::root());
        assert!(!errors.is_empty(), "{value}");
        assert!(size(&errors) < 16 << 20, "{value}: {}", size(&errors));
        let untold = "there are more errors, which are not listed";
        let last = errors.last().map(ToString::to_string).unwrap_or_default();
        assert!(errors.is_full() || last.ends_with(untold), "{value}");
        // Without the key there are just as many errors, and more than an answer tells are kept.
        let object = json!({"values":{"k":each(value)}});
        assert!(validate(&object, &schema, &Path::root()).len() >= 1000);
    }
    let object = json!({"sets":{&key:each(json!(["a", "a"]))}});
    let errors = validate_lists(&object, &schema, &Path::root());
    assert!(
        !errors.is_empty() && size(&errors) < 64 << 20,
        "{}",
        size(&errors)
    );
}

/// Each element was searched for in the whole old list, once for every check.
#[test]
fn regression_elements_are_found_by_their_keys() {
    let schema = json!({"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["a","b"],"items":{
        "type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"},"v":{"type":"string","maxLength":1}}}});
    let schema = Structural::from_json(&schema);
    let item =
        |at: usize, value: &str| json!({"a":format!("name-{}", at / 2),"b":at % 2,"v":value});
    let old: Value = (0..40_000).map(|at| item(at, "long")).collect();
    let mut new: Vec<Value> = (0..40_000).rev().map(|at| item(at, "long")).collect();
    // What was wrong before may stay; an element without one of its keys is another one.
    assert!(validate_update(&new.clone().into(), &old, &schema, &Path::root()).is_empty());
    new[3] = json!({"a":"name-19998","v":"long"});
    new[5] = item(39_994, "longer");
    let errors = validate_update(&new.into(), &old, &schema, &Path::root());
    let fields: Vec<&str> = errors.iter().map(|it| it.field.as_str()).collect();
    assert_eq!(fields, ["[3].v", "[5].v"]);
}

/// The attack: a default of a kilobyte for each of a million elements of two bytes.
#[test]
fn regression_the_defaults_of_an_object_are_bounded_together() {
    let text = "x".repeat(1 << 10);
    let field = json!({"type":"object","properties":{"a":{"type":"string","default":text}}});
    let element = json!({"type":"string","default":text});
    let spread = json!({"type":"object","additionalProperties":element});
    let many = |value: serde_json::Value| serde_json::Value::from(vec![value; 200_000]);
    let keys = (0..200_000).map(|at| (at.to_string(), json!(null)));
    for (schema, mut value) in [
        (json!({"type":"array","items":field}), many(json!({}))),
        (json!({"type":"array","items":element}), many(json!(null))),
        (spread, serde_json::Value::Object(keys.collect())),
    ] {
        default(&mut value, &Structural::from_json(&schema));
        let size = value.to_string().len();
        // It cannot be stored, and takes not much more memory than another one that cannot.
        assert!(size > 2 << 20 && size < 20 << 20, "{schema:.40}: {size}");
    }
    let mut small = json!([{}, {"a": "b"}]);
    let schema = json!({"type":"array","items":{"type":"object","properties":{"a":{"type":"string","default":"c"}}}});
    default(&mut small, &Structural::from_json(&schema));
    assert_eq!(small, json!([{"a": "c"}, {"a": "b"}]));
}
