//! Conditions about the resize of a pod.

use serde_json::{Value, json};

use super::super::allocations::{IN_PROGRESS, PENDING, ResizeCondition, ResizeConditions};
use super::seconds;

/// Adds the conditions about a resize to a status patch. A condition that no longer holds is deleted explicitly, because a
/// strategic merge patch keeps the entries of a list that it does not name.
pub(in crate::pods) fn add_resizes(status: &mut Value, resizes: &ResizeConditions) {
    let all = [
        (PENDING, &resizes.pending),
        (IN_PROGRESS, &resizes.progress),
    ];
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.extend(all.map(|(kind, resize)| match resize {
            None => json!({"type": kind, "$patch": "delete"}),
            Some(resize) => condition(kind, resize),
        }));
    }
}

fn condition(kind: &str, resize: &ResizeCondition) -> Value {
    let text = |text: &str| match text {
        "" => Value::Null,
        text => json!(text),
    };
    let mut condition = json!({
        "type": kind, "status": "True",
        "lastProbeTime": seconds(resize.probed), "lastTransitionTime": seconds(resize.since),
        "reason": text(&resize.reason), "message": text(&resize.message),
    });
    if resize.generation > 0 {
        condition["observedGeneration"] = json!(resize.generation);
    }
    condition
}
