//! The list `status.conditions`, in which each type appears once.

use serde_json::Value;

/// Sets a condition in a list: it replaces the one of its type, whose `lastTransitionTime` stays while its `status` does.
/// Returns whether the list has changed.
pub fn set_condition(conditions: &mut Vec<Value>, mut condition: Value) -> bool {
    const TIME: &str = "lastTransitionTime";
    let Some(known) = conditions
        .iter_mut()
        .find(|known| known["type"] == condition["type"])
    else {
        conditions.push(condition);
        return true;
    };
    if known["status"] == condition["status"] && !known[TIME].is_null() {
        condition[TIME] = known[TIME].clone();
    }
    let changed = *known != condition;
    *known = condition;
    changed
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_transition_time_changes_with_the_status_only() {
        let condition = |status: &str, reason: &str, time: i32| json!({"type": "A", "status": status, "reason": reason, "lastTransitionTime": time});
        let mut list = vec![json!({"type": "B"})];
        assert!(set_condition(&mut list, condition("True", "r", 1)));
        assert!(!set_condition(&mut list, condition("True", "r", 2)));
        assert!(set_condition(&mut list, condition("True", "other", 3)));
        assert_eq!(list[1], condition("True", "other", 1));
        assert!(set_condition(&mut list, condition("False", "other", 4)));
        assert_eq!(list, [json!({"type": "B"}), condition("False", "other", 4)]);
    }
}
