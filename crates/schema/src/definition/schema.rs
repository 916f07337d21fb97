//! Validation of the schemas in a definition.

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::Value;

use super::{list, text};
use crate::{
    rules::Rules,
    structural::{Structural, default, prune, validate},
};

/// Checks the schema of a version.
pub(super) fn validate_root(
    schema: &Value,
    with_status: bool,
    path: &Path,
    errors: &mut ErrorList,
) {
    if with_status {
        let kind = text(schema, "type");
        if !kind.is_empty() && kind != "object" {
            let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
            errors.push(Error::invalid(
                &Path::new(&format!("{path}.type")),
                kind,
                detail,
            ));
        }
    }
    if schema["nullable"] == true {
        errors.push(Error::forbidden(
            &Path::new(&format!("{path}.nullable")),
            "nullable cannot be true at the root",
        ));
    }
    walk(schema, path, errors);
    let unstructured = structural_errors(schema, path);
    let compiled = Structural::from_json(schema);
    validate_defaults(&compiled, path, errors);
    if unstructured.is_empty()
        && let Some(rules) = Rules::compile(&compiled)
    {
        errors.extend(rules.errors(path));
    }
    errors.extend(unstructured);
}

fn walk(schema: &Value, path: &Path, errors: &mut ErrorList) {
    if schema["uniqueItems"] == true {
        let detail =
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(Error::forbidden(&path.child("uniqueItems"), detail));
    }
    let has_properties = schema["properties"]
        .as_object()
        .is_some_and(|map| !map.is_empty());
    if !schema["additionalProperties"].is_null()
        && has_properties
        && schema["additionalProperties"] != false
    {
        let detail = "additionalProperties and properties are mutual exclusive";
        errors.push(Error::forbidden(
            &path.child("additionalProperties"),
            detail,
        ));
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == false {
        errors.push(Error::invalid(
            &path.child("x-kubernetes-preserve-unknown-fields"),
            false,
            "must be true or undefined",
        ));
    }
    let kind = text(schema, "type");
    if !kind.is_empty()
        && !matches!(
            kind,
            "object" | "array" | "string" | "integer" | "number" | "boolean"
        )
    {
        let known = ["array", "boolean", "integer", "number", "object", "string"];
        errors.push(Error::not_supported(&path.child("type"), kind, &known));
    }
    check_collection_types(schema, kind, path, errors);
    check_rules(schema, path, errors);
    for (name, sub) in schema["properties"].as_object().into_iter().flatten() {
        walk(sub, &path.child("properties").key(name), errors);
    }
    for key in ["additionalProperties", "items", "not"] {
        if schema[key].is_object() {
            walk(&schema[key], &path.child(key), errors);
        }
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for (index, sub) in list(schema, key).iter().enumerate() {
            walk(sub, &path.child(key).index(index), errors);
        }
    }
}

fn check_collection_types(schema: &Value, kind: &str, path: &Path, errors: &mut ErrorList) {
    let wrong = |expected: &str, what: &str| {
        let detail = format!("must be {expected} if {what} is specified");
        if kind.is_empty() {
            Error::required(&path.child("type"), detail)
        } else {
            Error::invalid(&path.child("type"), kind, detail)
        }
    };
    let map_type = text(schema, "x-kubernetes-map-type");
    if !map_type.is_empty() {
        if kind != "object" {
            errors.push(wrong("object", "x-kubernetes-map-type"));
        }
        if !matches!(map_type, "atomic" | "granular") {
            errors.push(Error::not_supported(
                &path.child("x-kubernetes-map-type"),
                map_type,
                &["atomic", "granular"],
            ));
        }
    }
    let list_type = text(schema, "x-kubernetes-list-type");
    let keys = list(schema, "x-kubernetes-list-map-keys");
    let at = path.child("x-kubernetes-list-type");
    let items = &schema["items"];
    if !list_type.is_empty() {
        if kind != "array" {
            errors.push(wrong("array", "x-kubernetes-list-type"));
        }
        if !matches!(list_type, "atomic" | "set" | "map") {
            errors.push(Error::not_supported(
                &at,
                list_type,
                &["atomic", "set", "map"],
            ));
        }
    }
    if list_type == "set" {
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let (key, value) = match text(items, "type") {
            "array" => (
                "x-kubernetes-list-type",
                text(items, "x-kubernetes-list-type"),
            ),
            "object" => (
                "x-kubernetes-map-type",
                text(items, "x-kubernetes-map-type"),
            ),
            _ => ("", "atomic"),
        };
        if value != "atomic" && !(key == "x-kubernetes-list-type" && value.is_empty()) {
            errors.push(Error::invalid(
                &path.child("items").child(key),
                value,
                detail,
            ));
        }
    }
    if !keys.is_empty() && list_type != "map" {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(if list_type.is_empty() {
            Error::required(&at, detail)
        } else {
            Error::invalid(&at, list_type, detail)
        });
    }
    if list_type == "map" {
        check_map_keys(items, keys, path, errors);
    }
}

fn check_map_keys(items: &Value, keys: &[Value], path: &Path, errors: &mut ErrorList) {
    let at = path.child("x-kubernetes-list-map-keys");
    if keys.is_empty() {
        errors.push(Error::required(
            &at,
            "must not be empty if x-kubernetes-list-type is map",
        ));
    }
    if !items.is_object() {
        errors.push(Error::required(
            &path.child("items"),
            "must have a schema if x-kubernetes-list-type is map",
        ));
        return;
    }
    let kind = text(items, "type");
    if kind != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        errors.push(Error::invalid(
            &path.child("items").child("type"),
            kind,
            detail,
        ));
    }
    let shown = Value::Array(keys.to_vec());
    for (index, key) in keys.iter().filter_map(Value::as_str).enumerate() {
        let property = &items["properties"][key];
        if property.is_null() {
            errors.push(Error::invalid(
                &at,
                &shown,
                "entries must all be names of item properties",
            ));
        } else if matches!(text(property, "type"), "array" | "object") {
            let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
            errors.push(Error::invalid(
                &path
                    .child("items")
                    .child("properties")
                    .key(key)
                    .child("type"),
                kind,
                detail,
            ));
        } else {
            // An entry is told by its keys, so they have to be there.
            let required = list(items, "required").iter().any(|name| name == key);
            if !required && property["default"].is_null() {
                let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                errors.push(Error::required(
                    &path
                        .child("items")
                        .child("properties")
                        .key(key)
                        .child("default"),
                    detail,
                ));
            }
        }
        if keys[..index].iter().any(|other| other == key) {
            errors.push(Error::invalid(
                &at,
                &shown,
                "must not contain duplicate entries",
            ));
        }
    }
}

fn check_rules(schema: &Value, path: &Path, errors: &mut ErrorList) {
    const REASONS: [&str; 4] = [
        "FieldValueDuplicate",
        "FieldValueForbidden",
        "FieldValueInvalid",
        "FieldValueRequired",
    ];
    for (index, rule) in list(schema, "x-kubernetes-validations").iter().enumerate() {
        let at = path.child("x-kubernetes-validations").index(index);
        if text(rule, "rule").trim().is_empty() {
            errors.push(Error::required(&at.child("rule"), "rule is not specified"));
        }
        let message = text(rule, "message");
        if !message.is_empty() && message.trim().is_empty() {
            errors.push(Error::invalid(
                &at.child("message"),
                message,
                "must be non-empty if specified",
            ));
        } else if message.contains('\n') {
            errors.push(Error::invalid(
                &at.child("message"),
                message,
                "must not contain line breaks",
            ));
        } else if text(rule, "rule").trim().contains('\n') && message.is_empty() {
            errors.push(Error::required(
                &at.child("message"),
                "message must be specified if rule contains line breaks",
            ));
        }
        if let Some(reason) = rule["reason"]
            .as_str()
            .filter(|reason| !REASONS.contains(reason))
        {
            errors.push(Error::not_supported(&at.child("reason"), reason, &REASONS));
        }
    }
}

/// Whether the schema is structural: types everywhere, and nothing but value validations inside the junctors.
pub fn structural_errors(schema: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let kind = text(schema, "type");
    if kind.is_empty() {
        errors.push(Error::required(
            &path.child("type"),
            "must not be empty at the root",
        ));
    } else if kind != "object" {
        errors.push(Error::invalid(
            &path.child("type"),
            kind,
            "must be object at the root",
        ));
    }
    structural(schema, Level::Root, path, &mut errors);
    errors
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Field,
    Item,
}

fn structural(schema: &Value, level: Level, path: &Path, errors: &mut ErrorList) {
    let int_or_string = schema["x-kubernetes-int-or-string"] == true;
    let preserve = schema["x-kubernetes-preserve-unknown-fields"] == true;
    let kind = text(schema, "type");
    if level != Level::Root && kind.is_empty() && !int_or_string && !preserve {
        let detail = match level {
            Level::Item => "must not be empty for specified array items",
            _ => "must not be empty for specified object fields",
        };
        errors.push(Error::required(&path.child("type"), detail));
    }
    if kind == "array" && !schema["items"].is_object() {
        errors.push(Error::required(&path.child("items"), "must be specified"));
    }
    if schema["x-kubernetes-embedded-resource"] == true {
        if kind != "object" {
            let detail = "must be object if x-kubernetes-embedded-resource is true";
            errors.push(if kind.is_empty() {
                Error::required(&path.child("type"), detail)
            } else {
                Error::invalid(&path.child("type"), kind, detail)
            });
        }
        if !preserve
            && schema["properties"]
                .as_object()
                .is_none_or(serde_json::Map::is_empty)
        {
            let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
            errors.push(Error::required(&path.child("properties"), detail));
        }
    }
    if int_or_string && !kind.is_empty() {
        let detail = "must be empty if x-kubernetes-int-or-string is true";
        errors.push(Error::invalid(&path.child("type"), kind, detail));
    }
    if level == Level::Root {
        let metadata = &schema["properties"]["metadata"];
        if metadata.is_object() && text(metadata, "type") != "object" {
            errors.push(Error::invalid(
                &path.child("properties").key("metadata").child("type"),
                text(metadata, "type"),
                "must be object",
            ));
        }
    }
    for (name, sub) in schema["properties"].as_object().into_iter().flatten() {
        structural(
            sub,
            Level::Field,
            &path.child("properties").key(name),
            errors,
        );
    }
    if schema["additionalProperties"].is_object() {
        structural(
            &schema["additionalProperties"],
            Level::Field,
            &path.child("additionalProperties"),
            errors,
        );
    }
    if schema["items"].is_object() {
        structural(&schema["items"], Level::Item, &path.child("items"), errors);
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for (index, sub) in list(schema, key).iter().enumerate() {
            nested(sub, schema, &path.child(key).index(index), errors);
        }
    }
    if schema["not"].is_object() {
        nested(&schema["not"], schema, &path.child("not"), errors);
    }
}

/// A schema inside a junctor may only restrict what the schema around it declares.
fn nested(schema: &Value, outer: &Value, path: &Path, errors: &mut ErrorList) {
    // The two alternatives of an int-or-string are told by type.
    let typed_alternative = outer["x-kubernetes-int-or-string"] == true;
    for key in [
        "type",
        "default",
        "nullable",
        "title",
        "description",
        "additionalProperties",
    ] {
        if !schema[key].is_null() && schema[key] != false && !(key == "type" && typed_alternative) {
            errors.push(Error::forbidden(
                &path.child(key),
                "must be empty to be structural",
            ));
        }
    }
    for key in [
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
    ] {
        if schema[key] == true {
            errors.push(Error::forbidden(
                &path.child(key),
                "must be false to be structural",
            ));
        }
    }
    for (name, sub) in schema["properties"].as_object().into_iter().flatten() {
        let declared = &outer["properties"][name];
        if declared.is_null()
            && outer["x-kubernetes-preserve-unknown-fields"] != true
            && !outer["additionalProperties"].is_object()
        {
            let at = schema_path(path).child("properties").key(name);
            errors.push(Error::required(
                &at,
                format!(
                    "because it is defined in {}",
                    path.child("properties").key(name)
                ),
            ));
        }
        nested(sub, declared, &path.child("properties").key(name), errors);
    }
    if schema["items"].is_object() {
        nested(
            &schema["items"],
            &outer["items"],
            &path.child("items"),
            errors,
        );
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for (index, sub) in list(schema, key).iter().enumerate() {
            nested(sub, outer, &path.child(key).index(index), errors);
        }
    }
    if schema["not"].is_object() {
        nested(&schema["not"], outer, &path.child("not"), errors);
    }
}

/// The path without the junctors.
fn schema_path(path: &Path) -> Path {
    let text = path.as_str();
    let cut = ["allOf[", "anyOf[", "oneOf[", "not"]
        .iter()
        .filter_map(|key| text.find(&format!(".{key}")))
        .min();
    Path::new(cut.map_or(text, |at| &text[..at]))
}

/// Defaults have to be valid and pruned.
fn validate_defaults(schema: &Structural, path: &Path, errors: &mut ErrorList) {
    if let Some(value) = schema.default.as_ref().filter(|value| !value.is_null()) {
        let at = path.child("default");
        let mut pruned = value.clone();
        prune(&mut pruned, schema);
        if pruned != *value {
            errors.push(Error::invalid(&at, value, "must not have unknown fields"));
        } else {
            let mut full = value.clone();
            default(&mut full, schema);
            errors.extend(validate(&full, schema, &at));
        }
    }
    for (name, sub) in &schema.properties {
        validate_defaults(sub, &path.child("properties").key(name), errors);
    }
    if let crate::structural::Additional::Schema(sub) = &schema.additional {
        validate_defaults(sub, &path.child("additionalProperties"), errors);
    }
    if let Some(sub) = &schema.items {
        validate_defaults(sub, &path.child("items"), errors);
    }
}
