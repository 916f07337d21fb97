//! Objects inside of custom resources (`x-kubernetes-embedded-resource`): they say what they are.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::Value;

use super::{Additional, Structural};

/// Errors of the embedded objects below a value; the value itself is the custom resource.
pub fn validate_embedded(value: &Value, schema: &Structural, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    below(value, schema, path, &mut errors);
    errors
}

fn below(value: &Value, schema: &Structural, path: &Path, errors: &mut ErrorList) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let inner = match (schema.properties.get(key), &schema.additional) {
                    (Some(property), _) => property,
                    (None, Additional::Schema(schema)) => schema,
                    _ => continue,
                };
                let at = if schema.properties.contains_key(key) {
                    path.child(key)
                } else {
                    path.key(key)
                };
                one(value, inner, &at, errors);
            }
        }
        Value::Array(items) => {
            let Some(inner) = schema.items.as_deref() else {
                return;
            };
            for (index, item) in items.iter().enumerate() {
                one(item, inner, &path.index(index), errors);
            }
        }
        _ => {}
    }
}

fn one(value: &Value, schema: &Structural, path: &Path, errors: &mut ErrorList) {
    if schema.embedded
        && let Value::Object(map) = value
    {
        const EMPTY: &str = "must not be empty";
        for key in ["apiVersion", "kind"] {
            let at = path.child(key);
            match map.get(key) {
                None => errors.push(Error::required(&at, EMPTY)),
                Some(Value::String(text)) if text.is_empty() => {
                    errors.push(Error::invalid(&at, text, EMPTY));
                }
                Some(Value::String(kind)) if key == "kind" => {
                    let texts = names::dns1035_label(&kind.to_lowercase());
                    if !texts.is_empty() {
                        errors.push(Error::invalid(&at, kind, texts.join(",")));
                    }
                }
                Some(Value::String(version)) => {
                    if version.matches('/').count() > 1 {
                        let detail = format!("unexpected GroupVersion string: {version}");
                        errors.push(Error::invalid(&at, version, detail));
                    }
                }
                Some(other) => errors.push(Error::invalid(&at, other, "must be a string")),
            }
        }
    }
    below(value, schema, path, errors);
}
