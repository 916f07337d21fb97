//! Whether a schema is structural: a type everywhere, and nothing but value validations inside the junctors (KEP-1027).

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_cel::Regex;
use serde_json::{Value, json};

use super::{is_said, list, text};

/// What keeps a schema from being structural, sorted by text. `path` leads to the schema.
pub fn structural_errors(schema: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    invariants(schema, Level::Root, path, &mut errors);
    complete(schema, Some(schema), path, path, &mut errors);
    errors.sort_by_text();
    errors
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Field,
    Item,
}

fn invariants(schema: &Value, level: Level, path: &Path, errors: &mut ErrorList) {
    let kind = text(schema, "type");
    let flag = |key: &str| schema[key] == true;
    let embedded = flag("x-kubernetes-embedded-resource");
    let int_or_string = flag("x-kubernetes-int-or-string");
    let preserves = flag("x-kubernetes-preserve-unknown-fields");
    let properties = schema["properties"].as_object();
    let (items, additional) = (&schema["items"], &schema["additionalProperties"]);
    let at_type = path.child("type");

    if kind == "array" && !items.is_object() {
        errors.push(Error::required(&path.child("items"), "must be specified"));
    }
    if items.is_object() {
        invariants(items, Level::Item, &path.child("items"), errors);
    }
    for (name, sub) in properties.into_iter().flatten() {
        invariants(
            sub,
            Level::Field,
            &path.child("properties").key(name),
            errors,
        );
    }
    let at_additional = path.child("additionalProperties");
    if !additional.is_null() && level == Level::Root {
        errors.push(Error::forbidden(
            &at_additional,
            "must not be used at the root",
        ));
    }
    if additional.is_object() {
        invariants(additional, Level::Field, &at_additional, errors);
    }
    if int_or_string {
        for (key, set) in [
            ("x-kubernetes-preserve-unknown-fields", preserves),
            ("x-kubernetes-embedded-resource", embedded),
        ] {
            if set {
                let detail = "must be false if x-kubernetes-int-or-string is true";
                errors.push(Error::invalid(&path.child(key), true, detail));
            }
        }
    }
    // The two alternatives of an int-or-string differ in `type`.
    let pattern = json!([{"type":"integer"},{"type":"string"}]);
    let skip = Skip {
        any_of: schema["anyOf"] == pattern,
        first_any_of: list(schema, "allOf")
            .first()
            .is_some_and(|first| first["anyOf"] == pattern),
    };
    value_checks(schema, skip, path, errors);

    if embedded && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(if kind.is_empty() {
            Error::required(&at_type, detail)
        } else {
            Error::invalid(&at_type, kind, detail)
        });
    } else if kind.is_empty() && !int_or_string && !preserves {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(Error::required(&at_type, detail));
    }
    if embedded && !additional.is_null() {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(Error::forbidden(&at_additional, detail));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        let detail = "must be object at the root";
        errors.push(Error::invalid(&at_type, kind, detail));
    }
    metadata(schema, level, embedded, path, errors);
    if embedded && !preserves && properties.is_none_or(serde_json::Map::is_empty) {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(Error::required(&path.child("properties"), detail));
    }
}

/// What a schema may say about the fields that every object has.
fn metadata(schema: &Value, level: Level, embedded: bool, path: &Path, errors: &mut ErrorList) {
    let whole = level == Level::Root || embedded;
    for (name, expected) in [
        ("kind", "string"),
        ("apiVersion", "string"),
        ("metadata", "object"),
    ] {
        let said = &schema["properties"][name];
        let kind = text(said, "type");
        if said.is_object() && whole && kind != expected {
            let at = path.child("properties").key(name).child("type");
            let detail = format!("must be {expected}");
            errors.push(Error::invalid(&at, kind, detail));
        }
    }
    let Some(said) = schema["properties"]["metadata"]
        .as_object()
        .filter(|_| level == Level::Root)
    else {
        return;
    };
    let allowed = |(key, value): (&String, &Value)| match key.as_str() {
        "type" | "default" => true,
        "properties" => value.as_object().is_some_and(|map| {
            map.keys()
                .all(|name| matches!(name.as_str(), "name" | "generateName"))
        }),
        _ => !is_said(value),
    };
    if !said.iter().all(allowed) {
        let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        let at = path.child("properties").key("metadata");
        errors.push(Error::forbidden(&at, detail));
    }
}

/// Which alternatives are those of an int-or-string, where a type is allowed.
#[derive(Clone, Copy, Default)]
struct Skip {
    any_of: bool,
    first_any_of: bool,
}

fn value_checks(schema: &Value, skip: Skip, path: &Path, errors: &mut ErrorList) {
    let nothing = Skip::default();
    if !skip.any_of {
        for (index, sub) in list(schema, "anyOf").iter().enumerate() {
            nested(sub, nothing, &path.child("anyOf").index(index), errors);
        }
    }
    for (index, sub) in list(schema, "allOf").iter().enumerate() {
        let skip = Skip {
            any_of: skip.first_any_of && index == 0,
            first_any_of: false,
        };
        nested(sub, skip, &path.child("allOf").index(index), errors);
    }
    for (index, sub) in list(schema, "oneOf").iter().enumerate() {
        nested(sub, nothing, &path.child("oneOf").index(index), errors);
    }
    if schema["not"].is_object() {
        nested(&schema["not"], nothing, &path.child("not"), errors);
    }
    let pattern = text(schema, "pattern");
    if !pattern.is_empty()
        && let Err(problem) = Regex::new(pattern)
    {
        let detail = format!(
            "must be a valid regular expression, but isn't: error parsing regexp: {problem}"
        );
        errors.push(Error::invalid(&path.child("pattern"), pattern, detail));
    }
}

/// A schema inside a junctor may only restrict what the schema around it declares.
fn nested(schema: &Value, skip: Skip, path: &Path, errors: &mut ErrorList) {
    value_checks(schema, skip, path, errors);
    let nothing = Skip::default();
    if schema["items"].is_object() {
        nested(&schema["items"], nothing, &path.child("items"), errors);
    }
    for (name, sub) in schema["properties"].as_object().into_iter().flatten() {
        nested(sub, nothing, &path.child("properties").key(name), errors);
    }
    let filled = |key: &str| match &schema[key] {
        Value::String(text) => !text.is_empty(),
        Value::Array(entries) => !entries.is_empty(),
        value => is_said(value),
    };
    for (key, there, wanted) in [
        ("type", filled("type"), "empty"),
        (
            "additionalProperties",
            is_said(&schema["additionalProperties"]),
            "undefined",
        ),
        ("default", !schema["default"].is_null(), "undefined"),
        ("title", filled("title"), "empty"),
        ("description", filled("description"), "empty"),
        ("nullable", filled("nullable"), "false"),
    ]
    .into_iter()
    .chain(
        [
            ("x-kubernetes-preserve-unknown-fields", "false"),
            ("x-kubernetes-embedded-resource", "false"),
            ("x-kubernetes-int-or-string", "false"),
            ("x-kubernetes-list-map-keys", "empty"),
        ]
        .map(|(key, wanted)| (key, filled(key), wanted)),
    )
    .chain(
        ["x-kubernetes-list-type", "x-kubernetes-map-type"]
            .map(|key| (key, !schema[key].is_null(), "undefined")),
    )
    .chain(Some((
        "x-kubernetes-validations",
        filled("x-kubernetes-validations"),
        "empty",
    ))) {
        if there {
            let detail = format!("must be {wanted} to be structural");
            errors.push(Error::forbidden(&path.child(key), detail));
        }
    }
    if !schema["properties"]["metadata"].is_null() {
        // Otherwise metadata could be restricted by the back door.
        let at = path.child("properties").key("metadata");
        errors.push(Error::forbidden(
            &at,
            "must not be specified in a nested context",
        ));
    }
}

/// Fields that the junctors of `schema` mention must be declared by `shape`. `at` leads to the declaration, `path` to the schema.
fn complete(schema: &Value, shape: Option<&Value>, at: &Path, path: &Path, errors: &mut ErrorList) {
    if schema["not"].is_object() {
        complete_nested(&schema["not"], shape, at, &path.child("not"), errors);
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        for (index, sub) in list(schema, key).iter().enumerate() {
            complete_nested(sub, shape, at, &path.child(key).index(index), errors);
        }
    }
}

fn complete_nested(
    schema: &Value,
    shape: Option<&Value>,
    at: &Path,
    path: &Path,
    errors: &mut ErrorList,
) {
    let Some(shape) = shape else {
        let detail = format!("because it is defined in {path}");
        errors.push(Error::required(at, detail));
        return;
    };
    complete(schema, Some(shape), at, path, errors);
    if schema["items"].is_object() {
        let items = Some(&shape["items"]).filter(|items| items.is_object());
        let (at, path) = (at.child("items"), path.child("items"));
        complete_nested(&schema["items"], items, &at, &path, errors);
    }
    for (name, sub) in schema["properties"].as_object().into_iter().flatten() {
        let declared = Some(&shape["properties"][name]).filter(|sub| sub.is_object());
        let at = at.child("properties").key(name);
        let path = path.child("properties").key(name);
        complete_nested(sub, declared, &at, &path, errors);
    }
}
