//! Namespaces.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::Value;

use super::{list, rule, text};

/// Checks the labels of a namespace that set its pod security levels and their versions.
pub(super) fn validate(namespace: &Value, errors: &mut ErrorList) {
    let path = Path::new("metadata").child("labels");
    let labels = &namespace["metadata"]["labels"];
    for mode in ["enforce", "audit", "warn"] {
        let key = format!("pod-security.kubernetes.io/{mode}");
        if let Some(level) = labels[&key].as_str()
            && !matches!(level, "privileged" | "baseline" | "restricted")
        {
            let detail = "must be one of privileged, baseline, restricted";
            errors.push(Error::invalid(&path.key(&key), level, detail));
        }
        let key = format!("{key}-version");
        if let Some(version) = labels[&key].as_str()
            && !is_version(version)
        {
            let detail = "must be \"latest\" or \"v1.x\"";
            errors.push(Error::invalid(&path.key(&key), version, detail));
        }
    }
}

fn is_version(text: &str) -> bool {
    let minor = text.strip_prefix("v1.");
    text == "latest"
        || minor.is_some_and(|minor| {
            let digits = !minor.is_empty() && minor.bytes().all(|it| it.is_ascii_digit());
            digits && (minor == "0" || !minor.starts_with('0'))
        })
}

/// Checks a status: what it says of the end of the namespace is what its metadata says.
pub(super) fn status(namespace: &Value, errors: &mut ErrorList) {
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

/// Checks what holds a namespace.
pub(super) fn finalizers(namespace: &Value, errors: &mut ErrorList) {
    let path = Path::new("spec").child("finalizers");
    for (index, finalizer) in list(&namespace["spec"], "finalizers").iter().enumerate() {
        let name = finalizer.as_str().unwrap_or_default();
        let at = path.index(index);
        rule(names::qualified_name(name), name, &at, errors);
        if !name.contains('/') && !matches!(name, "kubernetes" | "orphan" | "foregroundDeletion") {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(Error::invalid(&at, name, detail));
        }
    }
}
