//! The names of a definition's objects.

use allot_apimachinery::{
    field::{Error, ErrorList, Path},
    names::dns1035_label,
};
use serde_json::Value;

use super::{list, text};

/// Validates the names that are set; missing names are found elsewhere.
pub(super) fn validate(names: &Value, path: &Path, errors: &mut ErrorList) {
    for key in ["plural", "singular"] {
        let name = text(names, key);
        if !name.is_empty() {
            label(name, &path.child(key), errors);
        }
    }
    for key in ["kind", "listKind"] {
        let name = text(names, key);
        let texts = dns1035_label(&name.to_lowercase());
        if !name.is_empty() && !texts.is_empty() {
            let texts = texts.join(",");
            let detail = format!("may have mixed case, but should otherwise match: {texts}");
            errors.push(Error::invalid(&path.child(key), name, detail));
        }
    }
    labels(names, "shortNames", path, errors);
    let list_kind = text(names, "listKind");
    if !text(names, "kind").is_empty() && text(names, "kind") == list_kind {
        let detail = "kind and listKind may not be the same";
        errors.push(Error::invalid(&path.child("listKind"), list_kind, detail));
    }
    labels(names, "categories", path, errors);
}

fn labels(names: &Value, key: &str, path: &Path, errors: &mut ErrorList) {
    for (index, name) in list(names, key).iter().enumerate() {
        let name = name.as_str().unwrap_or_default();
        label(name, &path.child(key).index(index), errors);
    }
}

/// Errors of a DNS label, in one.
pub(super) fn label(name: &str, path: &Path, errors: &mut ErrorList) {
    let texts = dns1035_label(name);
    if !texts.is_empty() {
        errors.push(Error::invalid(path, name, texts.join(",")));
    }
}
