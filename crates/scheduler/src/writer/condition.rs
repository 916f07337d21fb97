//! Conditions of pods in patches.

use serde_json::{Value, json};

use crate::pod::PodInfo;

/// The status of a patch that sets a condition: a new one comes after the existing ones.
pub(super) fn with_condition(pod: &PodInfo, condition: Value) -> Value {
    let status = pod.pod.status.as_ref();
    let conditions = status.and_then(|s| s.conditions.as_deref());
    let kinds = conditions.unwrap_or_default().iter().map(|c| &*c.type_);
    let order: Vec<_> = kinds.map(|kind| json!({"type": kind})).collect();
    let mut patch = json!({"conditions": [condition]});
    let kind = &patch["conditions"][0]["type"];
    if !order.is_empty() && order.iter().all(|known| known["type"] != *kind) {
        let order = [order, vec![json!({"type": kind})]].concat();
        patch["$setElementOrder/conditions"] = order.into();
    }
    patch
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    /// A strategic merge patch puts new elements first where it does not give the order.
    #[test]
    fn a_new_condition_comes_last() {
        let check = |conditions: Value, expected: Value| {
            let pod = json!({"metadata": {"name": "p"}, "status": {"conditions": conditions}});
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            let pod = PodInfo::new(Arc::new(pod));
            let patch = with_condition(&pod, json!({"type": "A", "status": "True"}));
            assert_eq!(patch["$setElementOrder/conditions"], expected);
            assert_eq!(patch["conditions"][0]["status"], "True");
        };
        check(json!([]), Value::Null);
        let others = json!([{"type": "B", "status": "True"}, {"type": "C", "status": "True"}]);
        check(others, json!([{"type": "B"}, {"type": "C"}, {"type": "A"}]));
        let known = json!([{"type": "A", "status": "False"}, {"type": "C", "status": "True"}]);
        check(known, Value::Null);
    }
}
