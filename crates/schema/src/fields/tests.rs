use proptest::prelude::*;
use serde_json::json;

use super::*;

fn set(value: Value) -> Set {
    Set::from_fields_v1(&value).expect("a field set")
}

#[test]
fn the_published_form_is_read_and_written() {
    for fields in [
        json!({}),
        json!({"f:spec":{}}),
        json!({"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{"f:ports":{"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}}}}),
        json!({"f:finalizers":{"v:\"a/b\"":{}}}),
    ] {
        assert_eq!(set(fields.clone()).to_fields_v1(), fields);
    }
    assert!(Set::from_fields_v1(&json!({"x":{}})).is_none());
    assert!(Set::from_fields_v1(&json!({"f:a":1})).is_none());
}

/// The attack: fields in 120 levels, with which clients could read no list of the object's kind.
#[test]
fn regression_fields_are_nested_within_a_bound() {
    let nested = |levels: usize| (1..levels).fold(json!({}), |below, _| json!({"f:a": below}));
    let deepest = nested(101);
    assert_eq!(set(deepest.clone()).to_fields_v1(), deepest);
    assert!(Set::from_fields_v1(&nested(102)).is_none());
}

#[test]
fn keys_are_sorted_however_they_came() {
    let fields = set(json!({"k:{\"protocol\":\"TCP\",\"containerPort\":80}":{}}));
    assert_eq!(
        fields.to_fields_v1(),
        json!({"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{}})
    );
    assert_eq!(
        display_path(&fields.paths()[0]),
        r#"[containerPort=80,protocol="TCP"]"#
    );
}

#[test]
fn a_member_takes_what_is_below_it_out_of_a_recursive_difference() {
    let all = set(json!({"f:status":{".":{},"f:a":{}},"f:spec":{"f:b":{}}}));
    let minus = set(json!({"f:status":{}}));
    assert_eq!(
        all.recursive_difference(&minus),
        set(json!({"f:spec":{"f:b":{}}}))
    );
    assert_eq!(
        all.difference(&minus),
        set(json!({"f:status":{"f:a":{}},"f:spec":{"f:b":{}}}))
    );
}

fn path() -> impl Strategy<Value = Vec<PathElement>> {
    let element = prop_oneof![
        (0..4u8).prop_map(|n| PathElement::Field(format!("f{n}").into())),
        (0..3u8).prop_map(|n| PathElement::Key(vec![("name".to_owned(), json!(n))])),
        (0..3u8).prop_map(|n| PathElement::Value(json!(n))),
    ];
    prop::collection::vec(element, 1..4)
}

fn sets() -> impl Strategy<Value = Set> {
    prop::collection::vec(path(), 0..12).prop_map(|paths| {
        let mut set = Set::default();
        paths.iter().for_each(|path| set.insert(path));
        set
    })
}

proptest! {
    #[test]
    fn the_algebra_holds(a in sets(), b in sets()) {
        prop_assert_eq!(a.union(&b), b.union(&a));
        prop_assert_eq!(a.intersection(&b), b.intersection(&a));
        prop_assert_eq!(a.overlaps(&b), !a.intersection(&b).is_empty());
        prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
        prop_assert!(a.difference(&b).intersection(&b).is_empty());
        prop_assert_eq!(a.union(&b).difference(&b), a.difference(&b));
        prop_assert_eq!(Set::from_fields_v1(&a.to_fields_v1()), Some(a.clone()));
        for path in a.recursive_difference(&b).paths() {
            for length in 1..=path.len() {
                prop_assert!(!b.contains(&path[..length]));
            }
        }
    }
}
