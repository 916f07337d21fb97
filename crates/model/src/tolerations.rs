//! Which taints of nodes a toleration of a pod matches.

use allot_apimachinery::names;
use k8s_openapi::api::core::v1::{Taint, Toleration};

/// Whether a toleration tolerates a taint of a node (upstream's `Toleration.ToleratesTaint`). The operators `Lt` and `Gt`
/// compare both values as numbers: the taint's must be lower or greater. A value that is no decimal integer in canonical
/// form, or does not fit 64 bits, matches nothing.
///
/// Callers ignore tolerations with these operators ([`has_comparison_operator`]) where
/// `TaintTolerationComparisonOperators` is off.
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let matches_if_set = |own: &Option<String>, of_taint: &str| {
        own.as_deref()
            .is_none_or(|own| own.is_empty() || own == of_taint)
    };
    if !matches_if_set(&toleration.effect, &taint.effect)
        || !matches_if_set(&toleration.key, &taint.key)
    {
        return false;
    }
    let value = toleration.value.as_deref().unwrap_or_default();
    let of_taint = taint.value.as_deref().unwrap_or_default();
    match toleration.operator.as_deref() {
        None | Some("" | "Equal") => value == of_taint,
        Some("Exists") => true,
        Some("Lt") => matches!((integer(of_taint), integer(value)), (Some(a), Some(b)) if a < b),
        Some("Gt") => matches!((integer(of_taint), integer(value)), (Some(a), Some(b)) if a > b),
        Some(_) => false,
    }
}

/// Whether a toleration has one of the operators of `TaintTolerationComparisonOperators`.
pub fn has_comparison_operator(toleration: &Toleration) -> bool {
    is_comparison_operator(toleration.operator.as_deref().unwrap_or_default())
}

/// Whether an operator of a toleration compares numbers.
pub fn is_comparison_operator(operator: &str) -> bool {
    matches!(operator, "Lt" | "Gt")
}

/// A value in canonical form as a number of 64 bits.
fn integer(value: &str) -> Option<i64> {
    let is_canonical = names::decimal_integer(value).is_empty();
    is_canonical.then(|| value.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(expected: bool, toleration: Value, taint_value: &str) {
        let taint = Taint {
            key: "k".to_owned(),
            value: Some(taint_value.to_owned()),
            effect: "NoExecute".to_owned(),
            time_added: None,
        };
        let read: Toleration = serde_json::from_value(toleration.clone()).expect("a toleration");
        assert_eq!(
            tolerates(&read, &taint),
            expected,
            "{toleration} {taint_value}"
        );
    }

    #[test]
    fn tolerations_match_as_in_upstream() {
        check(true, json!({"operator": "Exists"}), "v");
        check(true, json!({"key": "k", "operator": "Exists"}), "v");
        let of_effect = |effect: &str| json!({"key": "k", "operator": "Exists", "effect": effect});
        check(true, of_effect("NoExecute"), "v");
        check(false, of_effect("NoSchedule"), "v");
        check(true, json!({"key": "k", "value": "v"}), "v");
        check(
            true,
            json!({"key": "k", "operator": "Equal", "value": "v"}),
            "v",
        );
        check(false, json!({"key": "k", "value": "w"}), "v");
        check(false, json!({"key": "other", "operator": "Exists"}), "v");
        check(
            false,
            json!({"key": "k", "operator": "In", "value": "v"}),
            "v",
        );
        check(false, json!({}), "v");
    }

    #[test]
    fn comparison_operators_compare_the_value_of_the_taint_with_that_of_the_toleration() {
        let compare = |operator: &str, value: &str, taint_value: &str| {
            let toleration = json!({"key": "k", "operator": operator, "value": value});
            let read: Toleration = serde_json::from_value(toleration.clone()).expect("read");
            assert!(has_comparison_operator(&read));
            let taint: Taint = serde_json::from_value(
                json!({"key": "k", "value": taint_value, "effect": "NoSchedule"}),
            )
            .expect("a taint");
            tolerates(&read, &taint)
        };
        // As text "100" is lower than "950".
        for (value, taint_value, lower, greater) in [
            ("950", "100", true, false),
            ("100", "950", false, true),
            ("950", "950", false, false),
            ("0", "-5", true, false),
            ("-10", "-5", false, true),
            ("9223372036854775807", "-9223372036854775808", true, false),
            // Not numbers in canonical form, or too large.
            ("950", "", false, false),
            ("950", "low", false, false),
            ("950", "0100", false, false),
            ("950", "+100", false, false),
            ("950", "-0", false, false),
            ("950", "1.5", false, false),
            ("950", "-9223372036854775809", false, false),
            ("0950", "100", false, false),
            ("", "100", false, false),
            ("9223372036854775808", "100", false, false),
        ] {
            let outcome = (
                compare("Lt", value, taint_value),
                compare("Gt", value, taint_value),
            );
            assert_eq!(outcome, (lower, greater), "{value} {taint_value}");
        }
    }

    #[test]
    fn other_operators_are_no_comparisons() {
        for operator in ["", "Equal", "Exists", "lt"] {
            assert!(!is_comparison_operator(operator), "{operator}");
        }
        assert!(!has_comparison_operator(&Toleration::default()));
    }
}
