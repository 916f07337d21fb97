//! Namespaces.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::Value;

use super::{list, rule, text};

/// Validates a status: its phase must match the deletion timestamp of the metadata.
pub(crate) fn status(namespace: &Value, errors: &mut ErrorList) {
    let ends = namespace["metadata"]["deletionTimestamp"].is_string();
    let phase = text(&namespace["status"], "phase");
    let (wanted, detail) = if ends {
        let detail = "may only be 'Terminating' if `deletionTimestamp` is not empty";
        ("Terminating", detail)
    } else {
        let detail = "may only be 'Active' if `deletionTimestamp` is empty";
        ("Active", detail)
    };
    if phase != wanted {
        let path = Path::new("status").child("Phase");
        errors.push(Error::invalid(&path, phase, detail));
    }
}

/// Checks what holds a namespace. For a new one upstream does not tell which of them is wrong.
pub(crate) fn finalizers(namespace: &Value, is_new: bool, errors: &mut ErrorList) {
    let path = Path::new("spec").child("finalizers");
    for (index, finalizer) in list(&namespace["spec"], "finalizers").iter().enumerate() {
        let name = finalizer.as_str().unwrap_or_default();
        let at = match is_new {
            true => path.clone(),
            false => path.index(index),
        };
        rule(names::qualified_name(name), name, &at, errors);
        if !name.contains('/') && !matches!(name, "kubernetes" | "orphan" | "foregroundDeletion") {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(Error::invalid(&at, name, detail));
        }
    }
}
