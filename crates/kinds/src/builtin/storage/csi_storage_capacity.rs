//! CSI storage capacities.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::{Quantity, names};
use serde_json::Value;

use super::STORAGE;
use crate::registry::{Builtin, Rules};
use crate::validate::{
    IMMUTABLE, entries, immutable, internal, label_selector, quantity, rule, text,
};
use crate::warnings::pod::{deprecated_label, expressions};

pub(super) static CSI_STORAGE_CAPACITY: Builtin = Builtin {
    kind: "CSIStorageCapacity",
    plural: "csistoragecapacities",
    namespaced: true,
    rules: Rules {
        requires_version: |_| true,
        validate,
        validate_update: Some(validate_update),
        warnings: old_labels,
        delete_returns_object: |_| false,
        ..STORAGE.rules
    },
    ..STORAGE
};

/// Warnings about deprecated node labels.
fn old_labels(object: &Value) -> Vec<String> {
    let (topology, place) = (&object["nodeTopology"], "nodeTopology");
    let mut found = Vec::new();
    expressions(topology, place, &mut found);
    for (label, _) in entries(topology, "matchLabels") {
        if let Some(words) = deprecated_label(label) {
            found.push(format!("{place}.matchLabels.{label}: {words}"));
        }
    }
    found
}

/// Checks how much a driver has left.
fn validate(object: &Value, errors: &mut ErrorList) {
    let topology = &object["nodeTopology"];
    if topology.is_object() {
        label_selector(topology, &Path::new("nodeTopology"), errors);
    }
    let class = text(object, "storageClassName");
    let at = Path::new("storageClassName");
    rule(names::dns1123_subdomain(class), class, &at, errors);
    if quantity(&object["capacity"]).is_some_and(|amount| amount < Quantity::ZERO) {
        let detail = "must be greater than or equal to 0";
        errors.push(Error::invalid(
            &Path::new("capacity"),
            &object["capacity"],
            detail,
        ));
    }
}

/// Checks a change of how much a driver has left.
fn validate_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    validate(object, errors);
    let topology = &object["nodeTopology"];
    if *topology != old["nodeTopology"] {
        let shown = match topology {
            Value::Null => topology.into(),
            topology => internal::selector(topology),
        };
        errors.push(Error::invalid(&Path::new("nodeTopology"), shown, IMMUTABLE));
    }
    let class = "storageClassName";
    immutable(object, old, class, &Path::new(class), errors);
}
