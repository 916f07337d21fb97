//! Validation of the schemas in a definition.
//!
//! Three passes over the same tree: whether it is structural (`structural`), whether its defaults are valid (`defaults`), and
//! whether each node has only permitted keywords (`walk`). CEL rules are compiled last, if there are no other errors.

use allot_apimachinery::{
    field::{BadValue, Error, ErrorList, Path},
    quote::go_json,
};
use serde_json::Value;

use super::{list, text};
use crate::{rules::Rules, structural::Structural};

mod collections;
mod defaults;
mod rule_texts;
mod structural;
mod walk;

pub use structural::structural_errors;

/// Keywords that are allowed at the root with a status subresource; upstream names its struct's fields.
const ROOT_FIELDS: &str = "[Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations]";

/// Checks the schema of a version; `path` leads to the object around it.
pub(super) fn validate_root(
    schema: &Value,
    with_status: bool,
    path: &Path,
    errors: &mut ErrorList,
) {
    let at = path.child("openAPIV3Schema");
    let mut found = ErrorList::new();
    if with_status {
        found.extend(root_with_status(schema, &at));
    }
    if schema["nullable"] == true {
        let detail = "nullable cannot be true at the root";
        found.push(Error::forbidden(&at.child("nullable"), detail));
    }
    let unsupported = unsupported(schema);
    let compiled = Structural::from_json(schema);
    let mut sound = false;
    if unsupported.is_none() {
        let mut unfit = structural_errors(schema, &at);
        if unfit.is_empty() {
            unfit = defaults::errors(&compiled, &at);
        }
        sound = unfit.is_empty();
        found.extend(unfit);
    }
    let walked = walk::walk(schema, &at);
    if sound && let Some(rules) = Rules::compile(&compiled) {
        let below = |path: &Path| walked.broken_below(path);
        let of_rules = rules.errors(&at, &below);
        found.extend(walked.errors);
        found.extend(of_rules);
    } else {
        found.extend(walked.errors);
    }
    if let Some(problem) = unsupported.filter(|_| found.is_empty()) {
        found.push(Error::invalid(&at, "", problem));
    }
    errors.extend(found);
}

fn root_with_status(schema: &Value, path: &Path) -> Option<Error> {
    let said = |key: &str| is_said(&schema[key]);
    let refused = || {
        let detail = format!(
            "only {ROOT_FIELDS} fields are allowed at the root of the schema if the status subresource is enabled"
        );
        Error::invalid(path, BadValue::raw(go_json(schema)), detail)
    };
    if ["id", "$schema", "$ref"].iter().any(|key| said(key)) {
        return Some(refused());
    }
    let kind = text(schema, "type");
    if !kind.is_empty() && kind != "object" {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        return Some(Error::invalid(&path.child("type"), kind, detail));
    }
    let others = [
        "nullable",
        "default",
        "enum",
        "maxProperties",
        "minProperties",
        "allOf",
        "oneOf",
        "anyOf",
        "not",
        "additionalProperties",
        "patternProperties",
        "dependencies",
        "additionalItems",
        "definitions",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
    ];
    others.iter().any(|key| said(key)).then(refused)
}

/// Whether a keyword is set: `null` and `false` count as absent.
fn is_said(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(false))
}

/// Why a schema cannot be decoded, in upstream's words.
pub(super) fn unsupported(schema: &Value) -> Option<String> {
    if !schema.is_object() {
        return None;
    }
    let filled = |key: &str| match &schema[key] {
        Value::String(text) => !text.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::Null => false,
        _ => true,
    };
    let named = [
        ("id", filled("id")),
        ("schema", filled("$schema")),
        ("$ref", filled("$ref")),
        ("patternProperties", filled("patternProperties")),
        ("dependencies", filled("dependencies")),
        ("additionalItems", !schema["additionalItems"].is_null()),
        ("definitions", filled("definitions")),
    ];
    if let Some((key, _)) = named.iter().find(|(_, there)| *there) {
        return Some(format!("OpenAPIV3Schema '{key}' is not supported"));
    }
    let junctors = ["allOf", "anyOf", "oneOf"].into_iter();
    let inside = junctors.flat_map(|key| list(schema, key));
    let mut inside = Some(&schema["not"]).into_iter().chain(inside);
    let problem = inside.find_map(unsupported);
    if problem.is_some() {
        return problem;
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == false {
        let problem =
            "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined";
        return Some(problem.to_owned());
    }
    if list(schema, "items").is_empty() {
        let properties = schema["properties"].as_object().into_iter().flatten();
        let below = properties.map(|(_, sub)| sub);
        return Some(&schema["items"])
            .into_iter()
            .chain(below)
            .chain(Some(&schema["additionalProperties"]))
            .find_map(unsupported);
    }
    Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned())
}

/// Whether the schema has a default anywhere.
pub(super) fn has_defaults(schema: &Value) -> bool {
    let map = |key: &str| schema[key].as_object().into_iter().flatten();
    let many = ["properties", "patternProperties", "definitions"]
        .into_iter()
        .flat_map(map)
        .map(|(_, sub)| sub);
    let listed = ["allOf", "anyOf", "oneOf", "items"]
        .into_iter()
        .flat_map(|key| list(schema, key));
    let single = ["not", "items", "additionalProperties", "additionalItems"]
        .into_iter()
        .map(|key| &schema[key])
        .filter(|sub| sub.is_object());
    !schema["default"].is_null() || many.chain(listed).chain(single).any(has_defaults)
}
