//! Objects embedded in custom resources (`x-kubernetes-embedded-resource`): they must have a type and valid metadata.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::Value;

use super::{Additional, MOST_ERRORS, Structural};

/// Validates the metadata of an embedded object, which may lack a name.
pub type MetaRule = fn(&Value, &Path) -> ErrorList;

/// The errors of the objects embedded in a value, whose metadata `meta` validates. The value itself counts as one if its
/// schema has `x-kubernetes-embedded-resource`.
pub fn validate_embedded(
    value: &Value,
    schema: &Structural,
    path: &Path,
    meta: MetaRule,
) -> ErrorList {
    errors_of(value, schema, schema.embedded, path, meta)
}

/// As [`validate_embedded`], for a value that is validated as an embedded object even if its schema does not say so.
pub(crate) fn validate_object(
    value: &Value,
    schema: &Structural,
    path: &Path,
    meta: MetaRule,
) -> ErrorList {
    errors_of(value, schema, true, path, meta)
}

fn errors_of(
    value: &Value,
    schema: &Structural,
    is_embedded: bool,
    path: &Path,
    meta: MetaRule,
) -> ErrorList {
    let mut errors = ErrorList::new();
    Walk { meta }.one(value, schema, is_embedded, path, &mut errors);
    errors
}

struct Walk {
    meta: MetaRule,
}

impl Walk {
    fn below(&self, value: &Value, schema: &Structural, path: &Path, errors: &mut ErrorList) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    let (inner, at) = match (schema.properties.get(key), &schema.additional) {
                        (Some(property), _) => (property, path.child(key)),
                        (None, Additional::Schema(schema)) => (&**schema, path.key(key)),
                        _ => continue,
                    };
                    self.one(value, inner, inner.embedded, &at, errors);
                }
            }
            Value::Array(items) => {
                let Some(inner) = schema.items.as_deref() else {
                    return;
                };
                for (index, item) in items.iter().enumerate() {
                    self.one(item, inner, inner.embedded, &path.index(index), errors);
                }
            }
            _ => {}
        }
    }

    fn one(
        &self,
        value: &Value,
        schema: &Structural,
        embedded: bool,
        path: &Path,
        errors: &mut ErrorList,
    ) {
        if errors.len() > MOST_ERRORS {
            return;
        }
        if embedded && value.is_object() {
            for key in ["apiVersion", "kind"] {
                errors.extend(type_error(key, &value[key], &path.child(key)));
            }
            if value["metadata"].is_object() {
                errors.extend((self.meta)(&value["metadata"], &path.child("metadata")));
            }
        }
        self.below(value, schema, path, errors);
    }
}

fn type_error(key: &str, value: &Value, path: &Path) -> Option<Error> {
    let text = match value {
        Value::Null => return Some(Error::required(path, "")),
        Value::String(text) => text,
        other => return Some(Error::invalid(path, other, "must be a string")),
    };
    let detail = if text.is_empty() {
        "must not be empty".to_owned()
    } else if key == "kind" {
        let texts = names::dns1035_label(&text.to_lowercase());
        if texts.is_empty() {
            return None;
        }
        let texts = texts.join(",");
        format!("may have mixed case, but should otherwise match: {texts}")
    } else if text.matches('/').count() > 1 {
        format!("unexpected GroupVersion string: {text}")
    } else {
        return None;
    };
    Some(Error::invalid(path, text, detail))
}
