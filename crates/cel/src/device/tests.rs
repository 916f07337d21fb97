use serde_json::json;

use super::*;

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
