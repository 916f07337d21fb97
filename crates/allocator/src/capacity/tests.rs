use k8s_openapi::api::resource::v1 as api;
use serde_json::{Value, json};

use super::*;

fn capacity(policy: Value) -> Capacity {
    with_fractions(policy, false)
}

fn with_fractions(policy: Value, fractional: bool) -> Capacity {
    let capacity: api::DeviceCapacity =
        serde_json::from_value(json!({"value": "8", "requestPolicy": policy})).unwrap();
    Capacity::new("mem", &capacity, None, fractional).0
}

/// The consumed amount, and whether the policy forbids it.
fn consume(capacity: &Capacity, asked: &str) -> (String, bool) {
    let asked = Quantity::new(&ApiQuantity(asked.into()));
    let consumed = capacity.consumed(Some(&asked));
    (consumed.text(), capacity.refuses(consumed.amount()))
}

#[test]
fn the_default_is_never_refused() {
    // Validation rejects such a policy; stored objects may have it.
    let odd =
        capacity(json!({"default": "3", "validRange": {"min": "2", "max": "8", "step": "2"}}));
    assert!(!odd.refuses(odd.consumed(None).amount()));
}

#[test]
fn rounding_in_ranges() {
    let range =
        capacity(json!({"default": "2", "validRange": {"min": "2", "max": "6", "step": "2"}}));
    for (asked, expected) in [
        ("1", ("2", false)),
        ("2", ("2", false)),
        ("3", ("4", false)),
        ("5500m", ("6", false)),
        ("7", ("8", true)),
    ] {
        assert_eq!(
            consume(&range, asked),
            (expected.0.to_owned(), expected.1),
            "{asked}"
        );
    }
    let minimum_only = capacity(json!({"default": "2", "validRange": {"min": "2"}}));
    assert_eq!(consume(&minimum_only, "2500m"), ("2500m".into(), false));
}

#[test]
fn fractional_ranges_count_in_thousandths() {
    let policy =
        json!({"default": "500m", "validRange": {"min": "500m", "max": "4", "step": "250m"}});
    let range = with_fractions(policy.clone(), true);
    for (asked, expected) in [
        ("100m", ("500m", false)),
        ("600m", ("750m", false)),
        ("999m", ("1", false)),
        ("4100m", ("4250m", true)),
        // Finer than the range can count.
        ("750500u", ("750500u", true)),
    ] {
        let expected = (expected.0.to_owned(), expected.1);
        assert_eq!(consume(&range, asked), expected, "{asked}");
    }
    // Before the feature, all of it is rounded up to whole units.
    assert_eq!(consume(&capacity(policy), "600m"), ("1".into(), false));
}

#[test]
fn the_step_gives_the_notation_of_fractional_ranges() {
    let policy = json!({"default": "1000", "validRange": {"min": "1000", "step": "1000"}});
    let rounded = |fractional| consume(&with_fractions(policy.clone(), fractional), "1500").0;
    assert_eq!(
        (rounded(false), rounded(true)),
        ("2000".into(), "2k".into())
    );
}

#[test]
fn steps_count_in_binary_notation() {
    let range = capacity(json!({"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}));
    assert_eq!(consume(&range, "1500Mi"), ("2Gi".into(), false));
}

#[test]
fn a_step_of_zero_does_not_divide() {
    let range = capacity(json!({"default": "1", "validRange": {"min": "1", "step": "0"}}));
    assert_eq!(consume(&range, "3"), ("3".into(), false));
}

#[test]
fn rounding_to_valid_values() {
    let values = capacity(json!({"default": "1", "validValues": ["1", "4"]}));
    assert_eq!(consume(&values, "2"), ("4".into(), false));
    assert_eq!(consume(&values, "5"), ("5".into(), true));
}
