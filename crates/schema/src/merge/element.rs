//! The path elements of list items, and values as Go prints them.

use allot_apimachinery::strconv::format_float;
use serde_json::Value;

use crate::{
    fields::PathElement,
    node::{List, Relation},
};

/// Why an item of a list has no path element; the texts are those of structured-merge-diff.
#[derive(Debug, thiserror::Error)]
pub(super) enum ElementError {
    #[error("invalid indexing of non-associative list")]
    Atomic,
    #[error("associative list without keys has an element that's a map type")]
    MapInSet,
    #[error("not supported: associative list with lists as elements")]
    ListInSet,
    #[error("associative list without keys has an element that's an explicit null")]
    NullInSet,
    #[error("associative list with keys may not have a null element")]
    NullInMap,
    #[error("associative list with keys may not have non-map elements")]
    ScalarInMap,
    #[error(
        "associative list with keys has an element that omits all key fields [{0}] (and doesn't have default values for any key fields)"
    )]
    NoKeys(String),
}

/// The path element of an item of a set or an associative list.
pub(super) fn of(list: List<'_>, item: &Value) -> Result<PathElement, ElementError> {
    match list.relation {
        Relation::Atomic => Err(ElementError::Atomic),
        Relation::Set => match item {
            Value::Object(_) => Err(ElementError::MapInSet),
            Value::Array(_) => Err(ElementError::ListInSet),
            Value::Null => Err(ElementError::NullInSet),
            scalar => Ok(PathElement::Value(scalar.clone())),
        },
        Relation::Map(keys) => {
            let map = match item {
                Value::Object(map) => map,
                Value::Null => return Err(ElementError::NullInMap),
                _ => return Err(ElementError::ScalarInMap),
            };
            let mut fields: Vec<(String, Value)> = keys
                .iter()
                .filter_map(|key| {
                    let value = map
                        .get(key)
                        .cloned()
                        .or_else(|| list.element.field_default(key))?;
                    Some((key.to_owned(), value))
                })
                .collect();
            if fields.is_empty() {
                let names: Vec<String> = keys.iter().map(|key| format!("{key:?}")).collect();
                return Err(ElementError::NoKeys(names.join(" ")));
            }
            fields.sort_by(|a, b| a.0.cmp(&b.0));
            Ok(PathElement::Key(fields))
        }
    }
}

/// Whether [`of`] returns a path element for the item. An item without one cannot be merged by key.
pub(super) fn has_place(list: List<'_>, item: &Value) -> bool {
    match list.relation {
        Relation::Atomic => false,
        Relation::Set => !matches!(item, Value::Object(_) | Value::Array(_) | Value::Null),
        Relation::Map(keys) => item.as_object().is_some_and(|map| {
            keys.iter()
                .any(|key| map.contains_key(key) || list.element.field_default(key).is_some())
        }),
    }
}

/// A value as Go's `%v` prints it.
pub fn go_value(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_value).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(map) => {
            let entries: Vec<String> = map
                .iter()
                .map(|(key, value)| format!("{key}:{}", go_value(value)))
                .collect();
            format!("map[{}]", entries.join(" "))
        }
        Value::Number(number) if number.is_f64() => {
            format_float(number.as_f64().unwrap_or_default())
        }
        other => other.to_string(),
    }
}

/// A value's Go type, as texts of upstream name it.
pub fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A wrapped value as Go's `%#v` prints it.
pub(super) fn go_syntax(value: &Value) -> String {
    fn inner(value: &Value) -> String {
        match value {
            Value::Null => "interface {}(nil)".to_owned(),
            Value::String(text) => format!("{text:?}"),
            Value::Array(items) => {
                let items: Vec<String> = items.iter().map(inner).collect();
                format!("[]interface {{}}{{{}}}", items.join(", "))
            }
            Value::Object(map) => {
                let entries: Vec<String> = map
                    .iter()
                    .map(|(key, value)| format!("{key:?}:{}", inner(value)))
                    .collect();
                format!("map[string]interface {{}}{{{}}}", entries.join(", "))
            }
            other => other.to_string(),
        }
    }
    format!("&value.valueUnstructured{{Value:{}}}", inner(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn regression_floats_in_values_are_printed_as_go_prints_them() {
        let check = |value: Value, expected: &str| assert_eq!(go_value(&value), expected);
        check(
            json!([0.0000001, 123_456_789.5, 1.5]),
            "[1e-07 1.234567895e+08 1.5]",
        );
        check(json!({"a": 1_000_000, "b": null}), "map[a:1000000 b:<nil>]");
    }
}
