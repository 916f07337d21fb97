//! Updates of the approval conditions of certificate signing requests.

use serde_json::Value;

use crate::object;
use crate::request::Part;

/// Keeps existing approval and denial conditions, and sets the timestamps of new conditions.
pub(crate) fn prepare_status(request: &mut Value, old: &Value, part: Part) {
    if !matches!(part, Part::Status | Part::Approval) {
        return;
    }
    let before: &[Value] = old["status"]["conditions"]
        .as_array()
        .map_or(&[], Vec::as_slice);
    let conditions = request.pointer_mut("/status/conditions");
    let Some(conditions) = conditions.and_then(Value::as_array_mut) else {
        return;
    };
    if part == Part::Status {
        for kind in ["Approved", "Denied"] {
            let known = before.iter().filter(|it| it["type"] == kind);
            let sent = conditions.iter().filter(|it| it["type"] == kind);
            if known.clone().count() == sent.count() {
                let sent = conditions.iter_mut().filter(|it| it["type"] == kind);
                sent.zip(known)
                    .for_each(|(sent, known)| *sent = known.clone());
            }
        }
    }
    let now = Value::from(object::now());
    for condition in conditions {
        if condition["lastUpdateTime"].is_null() {
            condition["lastUpdateTime"] = now.clone();
        }
        if condition["lastTransitionTime"].is_null() {
            let same = |it: &&Value| {
                it["type"] == condition["type"] && it["status"] == condition["status"]
            };
            let known = before.iter().find(same).map(|it| &it["lastTransitionTime"]);
            let since = known.cloned().unwrap_or_else(|| now.clone());
            condition["lastTransitionTime"] = since;
        }
    }
}
