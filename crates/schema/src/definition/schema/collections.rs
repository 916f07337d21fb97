//! How lists and maps are merged: `x-kubernetes-list-type`, its keys, and `x-kubernetes-map-type`.

use std::collections::BTreeSet;

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::Value;

use super::{list, text};

/// The number of errors about the keys of one list.
const MOST_ERRORS: usize = 16;

pub(super) fn validate(schema: &Value, path: &Path, errors: &mut ErrorList) {
    let kind = text(schema, "type");
    let needs = |expected: &str, what: &str| {
        let detail = format!("must be {expected} if {what} is specified");
        let at = path.child("type");
        if kind.is_empty() {
            Error::required(&at, detail)
        } else {
            Error::invalid(&at, kind, detail)
        }
    };
    if let Some(map_type) = schema["x-kubernetes-map-type"].as_str() {
        if kind != "object" {
            errors.push(needs("object", "x-kubernetes-map-type"));
        }
        let known = ["atomic", "granular"];
        if !known.contains(&map_type) {
            let at = path.child("x-kubernetes-map-type");
            errors.push(Error::not_supported(&at, map_type, &known));
        }
    }
    let items = &schema["items"];
    let keys = list(schema, "x-kubernetes-list-map-keys");
    let list_type = schema["x-kubernetes-list-type"].as_str();
    let at = path.child("x-kubernetes-list-type");
    if list_type.is_some() && kind != "array" {
        errors.push(needs("array", "x-kubernetes-list-type"));
    } else if list_type == Some("set") && items.is_object() {
        errors.extend(set_of(items, &path.child("items")));
    }
    let known = ["atomic", "set", "map"];
    if let Some(list_type) = list_type.filter(|list_type| !known.contains(list_type)) {
        errors.push(Error::not_supported(&at, list_type, &known));
    }
    if !keys.is_empty() && list_type != Some("map") {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(match list_type {
            None => Error::required(&at, detail),
            Some(list_type) => Error::invalid(&at, list_type, detail),
        });
    }
    if list_type == Some("map") {
        map_of(items, keys, path, errors);
    }
    if let Some(list_type @ ("set" | "map")) = list_type
        && items.is_object()
    {
        never_null(items, list_type, keys, path, errors);
    }
}

/// The elements of a set are compared whole.
fn set_of(items: &Value, path: &Path) -> Option<Error> {
    let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let list_type = &items["x-kubernetes-list-type"];
    let key = match text(items, "type") {
        "array" if !list_type.is_null() && list_type != "atomic" => "x-kubernetes-list-type",
        "object" if items["x-kubernetes-map-type"] != "atomic" => "x-kubernetes-map-type",
        _ => return None,
    };
    // Upstream shows the list type in both cases.
    Some(Error::invalid(&path.child(key), list_type, detail))
}

/// The elements of a map-like list are objects, told by scalar fields.
fn map_of(items: &Value, keys: &[Value], path: &Path, errors: &mut ErrorList) {
    let at = path.child("x-kubernetes-list-map-keys");
    let at_items = path.child("items");
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        errors.push(Error::required(&at, detail));
    }
    if items.is_null() {
        let detail = "must have a schema if x-kubernetes-list-type is map";
        errors.push(Error::required(&at_items, detail));
        return;
    }
    if !items.is_object() {
        let detail = "must only have a single schema if x-kubernetes-list-type is map";
        errors.push(Error::invalid(&at_items, items, detail));
        return;
    }
    let kind = text(items, "type");
    if kind != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(Error::invalid(&at_items.child("type"), kind, detail));
        return;
    }
    let shown = Value::Array(keys.to_vec());
    let (mut seen, mut found) = (BTreeSet::new(), 0);
    for key in keys.iter().filter_map(Value::as_str) {
        let property = &items["properties"][key];
        if property.is_null() {
            let detail = "entries must all be names of item properties";
            errors.push(Error::invalid(&at, &shown, detail));
            found += 1;
        } else if matches!(text(property, "type"), "array" | "object") {
            let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            let at = at_items.child("properties").key(key).child("type");
            errors.push(Error::invalid(&at, kind, detail));
            found += 1;
        }
        if !seen.insert(key) {
            let detail = "must not contain duplicate entries";
            errors.push(Error::invalid(&at, &shown, detail));
            found += 1;
        }
        // Each error contains all keys: a few say as much as one for each of thousands.
        if found >= MOST_ERRORS || found > 0 && errors.is_full() {
            return;
        }
    }
}

/// An element is identified by its value or its keys, so these are required.
fn never_null(items: &Value, list_type: &str, keys: &[Value], path: &Path, errors: &mut ErrorList) {
    let at_items = path.child("items");
    if items["nullable"] == true {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(Error::forbidden(&at_items.child("nullable"), detail));
    }
    if list_type != "map" {
        return;
    }
    let required = list(items, "required").iter().filter_map(Value::as_str);
    let required: BTreeSet<&str> = required.collect();
    for key in keys.iter().filter_map(Value::as_str) {
        let property = &items["properties"][key];
        let at = at_items.child("properties").key(key);
        let why = "this property is in x-kubernetes-list-map-keys, so it";
        if property.is_object() && !required.contains(key) && property["default"].is_null() {
            let detail = format!("{why} must have a default or be a required property");
            errors.push(Error::required(&at.child("default"), detail));
        }
        if property["nullable"] == true {
            let detail = format!("{why} cannot be nullable");
            errors.push(Error::forbidden(&at.child("nullable"), detail));
        }
    }
}
