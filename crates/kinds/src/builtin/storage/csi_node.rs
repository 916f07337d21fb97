//! CSI nodes: the CSI drivers of a node.

use std::collections::{BTreeMap, BTreeSet};

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::{Value, json};

use super::STORAGE;
use crate::object::items;
use crate::registry::{Builtin, Rules};
use crate::table::age;
use crate::table::format::name;
use crate::validate::volume::driver_name;
use crate::validate::{IMMUTABLE, internal, list, not_negative, rule, text};

pub(super) static CSI_NODE: Builtin = Builtin {
    kind: "CSINode",
    plural: "csinodes",
    rules: Rules {
        requires_version: |_| true,
        validate,
        validate_update: Some(validate_update),
        checks_metadata_change: |_| false,
        table: Some(("Name|Drivers:integer|Age", row)),
        ..STORAGE.rules
    },
    ..STORAGE
};

/// Longest node ID of a driver.
const MAX_NODE_ID: usize = 256;

/// Checks the drivers of a node.
fn validate(object: &Value, errors: &mut ErrorList) {
    let path = Path::new("spec").child("drivers");
    let mut seen = BTreeSet::new();
    for (index, driver) in list(&object["spec"], "drivers").iter().enumerate() {
        let at = path.index(index);
        let name = text(driver, "name");
        driver_name(name, &at.child("name"), errors);
        let node = text(driver, "nodeID");
        let place = at.child("nodeID");
        if node.is_empty() {
            errors.push(Error::required(&place, ""));
        }
        if node.len() > MAX_NODE_ID {
            let detail = format!("must be {MAX_NODE_ID} characters or less");
            errors.push(Error::invalid(&place, node, detail));
        }
        let count = &driver["allocatable"]["count"];
        not_negative(count, &at.child("allocatable").child("count"), errors);
        if !seen.insert(name) {
            errors.push(Error::duplicate(&at.child("name"), name));
        }
        let mut keys = BTreeSet::new();
        for key in list(driver, "topologyKeys") {
            let key = key.as_str().unwrap_or_default();
            if key.is_empty() {
                errors.push(Error::required(&at, ""));
            }
            if !keys.insert(key) {
                errors.push(Error::duplicate(&at, key));
            }
            rule(names::qualified_name(key), key, &at, errors);
        }
    }
}

/// Validates an update of a CSINode: of a remaining driver, only the allocatable count may change.
fn validate_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    validate(object, errors);
    let lasting = |driver: &Value| {
        let mut driver = driver.clone();
        if let Value::Object(map) = &mut driver {
            map.remove("allocatable");
        }
        driver
    };
    let mut now_by_name: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for driver in list(&object["spec"], "drivers") {
        let same = now_by_name.entry(text(driver, "name")).or_default();
        same.push(driver);
    }
    for before in list(&old["spec"], "drivers") {
        for now in now_by_name.get(text(before, "name")).into_iter().flatten() {
            let now_fixed = lasting(now);
            if now_fixed != lasting(before) {
                let at = Path::new("spec").child("drivers");
                let kind = ("storage.k8s.io", "v1", "CSINode");
                let shown = internal::shown(kind, &["spec", "drivers"], &now_fixed);
                errors.push(Error::invalid(&at, shown, IMMUTABLE));
            }
        }
    }
}

fn row(object: &Value) -> Vec<Value> {
    vec![
        name(object),
        json!(items(&object["spec"]["drivers"]).len()),
        age(object),
    ]
}
