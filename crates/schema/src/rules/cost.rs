//! What rules may cost by estimate, and what is said where they exceed it.

/// The most that one rule may cost by estimate, times how often it can run.
pub(super) const RULE_LIMIT: u64 = 10_000_000;
/// The most that all rules of a version may cost by estimate.
pub(super) const DEFINITION_LIMIT: u64 = 100_000_000;

pub(super) fn message(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        // Otherwise it would read as a factor of one.
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}
