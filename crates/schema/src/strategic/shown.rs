//! How errors show a patch.

use serde_json::Value;

use super::discard_nulls;
use crate::merge::go_value;

/// The patch as upstream prints it after it was applied, which takes nulls out of everything that the original lacks.
pub fn shown(original: &Value, patch: &Value) -> String {
    let mut patch = patch.clone();
    prune(original, &mut patch);
    go_value(&patch)
}

fn prune(original: &Value, patch: &mut Value) {
    for (key, value) in patch.as_object_mut().into_iter().flatten() {
        match original.get(key) {
            None => discard_nulls(value),
            Some(original) => prune(original, value),
        }
    }
}
