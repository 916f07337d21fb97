//! Storage classes.

use std::collections::{BTreeMap, BTreeSet};

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::{Value, json};

use super::STORAGE;
use crate::object::{self, items, meta};
use crate::registry::{Builtin, Rules};
use crate::table::age;
use crate::validate::{IMMUTABLE, entries, one_of, one_of_set, rule, text};
use crate::warnings::pod::deprecated_label;

pub(super) static STORAGE_CLASS: Builtin = Builtin {
    kind: "StorageClass",
    plural: "storageclasses",
    short: &["sc"],
    rules: Rules {
        validate,
        validate_update: Some(validate_update),
        warnings: old_labels,
        table: Some((
            "Name|Provisioner|ReclaimPolicy|VolumeBindingMode|AllowVolumeExpansion|Age",
            row,
        )),
        ..STORAGE.rules
    },
    ..STORAGE
};

/// Warnings about deprecated node labels.
fn old_labels(class: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for (index, topology) in items(&class["allowedTopologies"]).iter().enumerate() {
        let expressions = items(&topology["matchLabelExpressions"]).iter();
        for (at, expression) in expressions.enumerate() {
            if let Some(words) = deprecated_label(text(expression, "key")) {
                found.push(format!(
                    "allowedTopologies[{index}].matchLabelExpressions[{at}].key: {words}"
                ));
            }
        }
    }
    found
}

/// Most parameters of a class, and their size in bytes.
const MAX_PARAMETERS: usize = 512;
const MAX_PARAMETER_BYTES: usize = 256 << 10;

/// Validates the name of a provisioner.
pub(super) fn provisioner(name: &str, path: &Path, errors: &mut ErrorList) {
    if name.is_empty() {
        errors.push(Error::required(path, ""));
    } else {
        let name = name.to_lowercase();
        rule(names::qualified_name(&name), &name, path, errors);
    }
}

/// Validates the parameters of a provisioner.
pub(super) fn parameters(object: &Value, errors: &mut ErrorList) {
    let path = Path::new("parameters");
    if entries(object, "parameters").count() > MAX_PARAMETERS {
        errors.push(Error::too_long(&path, MAX_PARAMETERS));
        return;
    }
    let mut size = 0;
    for (key, value) in entries(object, "parameters") {
        if key.is_empty() {
            let detail = "field can not be empty.";
            errors.push(Error::invalid(&path, "", detail));
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > MAX_PARAMETER_BYTES {
        errors.push(Error::too_long(&path, MAX_PARAMETER_BYTES));
    }
}

/// Checks a storage class.
fn validate(object: &Value, errors: &mut ErrorList) {
    provisioner(
        text(object, "provisioner"),
        &Path::new("provisioner"),
        errors,
    );
    parameters(object, errors);
    let policies = ["Delete", "Retain"];
    one_of(
        text(object, "reclaimPolicy"),
        &policies,
        false,
        &Path::new("reclaimPolicy"),
        errors,
    );
    let modes = ["Immediate", "WaitForFirstConsumer"];
    one_of_set(
        &object["volumeBindingMode"],
        &modes,
        true,
        &Path::new("volumeBindingMode"),
        errors,
    );
    topologies(object, errors);
}

/// Checks the terms of which nodes may have one: every label with values, and neither a label nor a term twice.
fn topologies(object: &Value, errors: &mut ErrorList) {
    // How many terms have the same labels.
    let mut terms: BTreeMap<_, usize> = BTreeMap::new();
    let all = items(&object["allowedTopologies"]);
    for (index, term) in all.iter().enumerate() {
        let path = Path::new("allowedTopologies")
            .index(index)
            .child("matchLabelExpressions");
        let mut labels = BTreeMap::new();
        let expressions = items(&term["matchLabelExpressions"]).iter();
        for (index, expression) in expressions.enumerate() {
            let (at, values) = (path.index(index), path.index(index).child("values"));
            let mut set = BTreeSet::new();
            for (index, value) in items(&expression["values"]).iter().enumerate() {
                let value = value.as_str().unwrap_or_default();
                if !set.insert(value) {
                    errors.push(Error::duplicate(&values.index(index), value));
                }
            }
            if set.is_empty() {
                errors.push(Error::required(&values, ""));
            }
            let (key, at) = (text(expression, "key"), at.child("key"));
            rule(names::qualified_name(key), key, &at, errors);
            if labels.insert(key, set).is_some() {
                errors.push(Error::duplicate(&at, key));
            }
        }
        // Upstream compares with as many empty terms as there are terms, too.
        let empty = if labels.is_empty() { all.len() } else { 0 };
        let equal = terms.entry(labels).or_default();
        for _ in 0..empty + *equal {
            errors.push(Error::duplicate(&path, ""));
            // Each of many terms has as many errors.
            if errors.is_full() {
                return;
            }
        }
        *equal += 1;
    }
}

/// Checks a change of a storage class.
fn validate_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    validate(object, errors);
    for key in [
        "parameters",
        "provisioner",
        "reclaimPolicy",
        "volumeBindingMode",
    ] {
        if object[key] != old[key] {
            let shown = match (key, &object[key]) {
                ("provisioner", Value::Null) => "".into(),
                (_, value) => BadValue::from(value),
            };
            errors.push(Error::invalid(&Path::new(key), shown, IMMUTABLE));
        }
    }
}

fn row(object: &Value) -> Vec<Value> {
    let default =
        object["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] == "true";
    let title = if default {
        format!("{} (default)", meta(object, "name"))
    } else {
        meta(object, "name").to_owned()
    };
    vec![
        json!(title),
        json!(object::text(object, &["provisioner"])),
        json!(object["reclaimPolicy"].as_str().unwrap_or("Delete")),
        json!(object["volumeBindingMode"].as_str().unwrap_or("Immediate")),
        json!(object["allowVolumeExpansion"].as_bool().unwrap_or(false)),
        age(object),
    ]
}
