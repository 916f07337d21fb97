//! What claims of volumes and volumes share: access modes, sizes, and the spec of a claim, also in a template.

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::{Quantity, names};
use serde_json::Value;

use super::{label_selector, list, one_of_set, quantity, rule, text};

const MODES: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];

pub(crate) fn access_modes(spec: &Value, missing: &str, path: &Path, errors: &mut ErrorList) {
    let at = path.child("accessModes");
    let modes = list(spec, "accessModes");
    if modes.is_empty() {
        errors.push(Error::required(&at, missing));
    }
    let alone = modes.iter().any(|mode| mode == "ReadWriteOncePod");
    for mode in modes {
        let mode = mode.as_str().unwrap_or_default();
        if !MODES.contains(&mode) {
            errors.push(Error::not_supported(&at, mode, &MODES));
        }
    }
    if alone && modes.len() > 1 {
        let detail = "may not use ReadWriteOncePod with other access modes";
        errors.push(Error::forbidden(&at, detail));
    }
}

pub(crate) fn size(amount: &Value, path: &Path, errors: &mut ErrorList) {
    if quantity(amount).is_some_and(|amount| amount <= Quantity::ZERO) {
        errors.push(Error::invalid(path, amount, "must be greater than zero"));
    }
}

/// Validates the spec of a PersistentVolumeClaim.
pub(crate) fn claim_spec(spec: &Value, path: &Path, errors: &mut ErrorList) {
    access_modes(spec, "at least 1 access mode is required", path, errors);
    if spec["selector"].is_object() {
        label_selector(&spec["selector"], &path.child("selector"), errors);
    }
    let at = path.child("resources");
    match &spec["resources"]["requests"]["storage"] {
        Value::Null => errors.push(Error::required(&at.key("storage"), "")),
        amount => size(amount, &at.key("storage"), errors),
    }
    if let Some(class) = spec["storageClassName"].as_str()
        && !class.is_empty()
    {
        let texts = names::dns1123_subdomain(class);
        rule(texts, class, &path.child("storageClassName"), errors);
    }
    let modes = ["Block", "Filesystem"];
    let at = path.child("volumeMode");
    one_of_set(&spec["volumeMode"], &modes, false, &at, errors);
    for key in ["dataSource", "dataSourceRef"] {
        if spec[key].is_object() {
            data_source(&spec[key], &path.child(key), errors);
        }
    }
    let (source, other) = (&spec["dataSource"], &spec["dataSourceRef"]);
    if source.is_object() && other.is_object() {
        // Upstream shows a path where the value belongs, and that value is empty.
        let detail = if text(other, "namespace").is_empty() {
            let same = ["apiGroup", "kind", "name"]
                .iter()
                .all(|key| source[*key] == other[*key]);
            (!same).then_some("must match dataSourceRef")
        } else {
            Some("may not be specified when dataSourceRef.namespace is specified")
        };
        if let Some(detail) = detail {
            errors.push(Error::invalid(path, BadValue::raw("{}"), detail));
        }
    }
    let class = text(spec, "volumeAttributesClassName");
    if !class.is_empty() {
        let at = path.child("volumeAttributesClassName");
        rule(names::dns1123_subdomain(class), class, &at, errors);
    }
}

/// What a new volume begins with.
fn data_source(source: &Value, path: &Path, errors: &mut ErrorList) {
    for key in ["name", "kind"] {
        if text(source, key).is_empty() {
            errors.push(Error::required(&path.child(key), ""));
        }
    }
    let (group, kind) = (text(source, "apiGroup"), text(source, "kind"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.push(Error::invalid(path, kind, detail));
    }
    if !group.is_empty() {
        rule(
            names::dns1123_subdomain(group),
            group,
            &path.child("apiGroup"),
            errors,
        );
    }
}
