use std::collections::BTreeMap;

use serde::Deserialize;

use super::*;

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Outer {
    inner: Option<Inner>,
    list: Vec<Inner>,
    map: BTreeMap<String, Inner>,
    free: serde_json::Value,
    n: i64,
}

#[derive(Debug, Default, Clone, PartialEq, Deserialize)]
#[serde(default)]
struct Inner {
    a: Option<String>,
    b: Option<bool>,
}

const TEXT: &str = r#"{"n": 3, "inner": {"a": "x", "b": true}, "list": [{"b": false, "a": "\"y"}, {}],
    "map": {"a": {"a": "z", "b": true}}, "free": {"a": [1, {"a": null}]}, "unknown": {"a": 1}}"#;

fn read_with(keep: Keep) -> Outer {
    read(&mut serde_json::Deserializer::from_str(TEXT), keep).unwrap()
}

#[test]
fn everything_is_read_when_everything_is_kept() {
    let plain: Outer = serde_json::from_str(TEXT).unwrap();
    assert_eq!(read_with(|_, _| true), plain);
}

#[test]
fn a_field_of_a_struct_is_skipped_wherever_the_struct_stands() {
    let lean = read_with(|of, field| (of, field) != ("Inner", "a"));
    let b = |b| Inner { a: None, b };
    assert_eq!(lean.inner, Some(b(Some(true))));
    assert_eq!(lean.list, [b(Some(false)), b(None)]);
    // Keys of a map are no fields.
    assert_eq!(lean.map, BTreeMap::from([("a".to_owned(), b(Some(true)))]));
    assert_eq!(lean.free, serde_json::json!({"a": [1, {"a": null}]}));
    assert_eq!(lean.n, 3);
}

#[test]
fn a_list_of_one_has_room_for_one() {
    let of = |text: &str| -> Vec<Inner> {
        read(&mut serde_json::Deserializer::from_str(text), |_, _| true).unwrap()
    };
    let one = of(r#"[{"b": true}]"#);
    assert_eq!((one.len(), one.capacity()), (1, 1));
    let many = of("[{}, {}, {}, {}, {}]");
    assert_eq!(many, vec![Inner::default(); 5]);
}

#[test]
fn a_struct_is_skipped_as_a_whole() {
    let lean = read_with(|of, field| of != "Outer" || field == "n");
    assert_eq!(
        lean,
        Outer {
            n: 3,
            ..Outer::default()
        }
    );
}

#[test]
fn values_in_memory_are_read_the_same_way() {
    let value: serde_json::Value = serde_json::from_str(TEXT).unwrap();
    let keep: Keep = |_, field| field != "b";
    let lean: Outer = read(value, keep).unwrap();
    assert_eq!(lean, read_with(keep));
}

#[test]
fn errors_are_those_of_the_format() {
    let mut text = serde_json::Deserializer::from_str(r#"{"n": "x"}"#);
    let error = read::<Outer, _>(&mut text, |_, _| true).unwrap_err();
    assert!(
        error.to_string().starts_with("invalid type: string \"x\""),
        "{error}"
    );
    // Skipped fields are not validated.
    let mut text = serde_json::Deserializer::from_str(r#"{"n": "x"}"#);
    let lean: Outer = read(&mut text, |_, field| field != "n").unwrap();
    assert_eq!(lean.n, 0);
}
