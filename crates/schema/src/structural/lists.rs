//! Uniqueness in lists of type `set` and `map`.

use std::collections::BTreeMap;

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::{Map, Value};

use super::{Additional, MOST_ERRORS, Structural};

/// Names the first repetition of every element that is there more than once.
pub fn validate_lists(value: &Value, schema: &Structural, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    walk(value, schema, path, &mut errors);
    errors
}

fn walk(value: &Value, schema: &Structural, path: &Path, errors: &mut ErrorList) {
    if errors.len() > MOST_ERRORS {
        return;
    }
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if let Some(property) = schema.properties.get(key) {
                    walk(value, property, &path.child(key), errors);
                } else if let Additional::Schema(sub) = &schema.additional {
                    walk(value, sub, &path.key(key), errors);
                }
            }
        }
        Value::Array(items) => {
            match schema.list_type.as_str() {
                "set" => repeated(items).take(MOST_ERRORS).for_each(|index| {
                    errors.push(Error::duplicate(&path.index(index), &items[index]));
                }),
                "map" => check_map(items, schema, path, errors),
                _ => {}
            }
            if let Some(sub) = &schema.items {
                for (index, item) in items.iter().enumerate() {
                    walk(item, sub, &path.index(index), errors);
                }
            }
        }
        _ => {}
    }
}

fn check_map(items: &[Value], schema: &Structural, path: &Path, errors: &mut ErrorList) {
    if let Some(index) = items
        .iter()
        .position(|item| !item.is_object() && !item.is_null())
    {
        errors.push(Error::invalid(
            &path.index(index),
            &items[index],
            "must be an object for an array of list-type map",
        ));
        return;
    }
    let keys: Vec<Value> = items
        .iter()
        .map(|item| {
            let fields = schema
                .list_map_keys
                .iter()
                .filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
            Value::Object(fields.collect::<Map<String, Value>>())
        })
        .collect();
    let values: Vec<String> = items
        .iter()
        .map(|item| {
            let value = |key: &String| item.get(key).map(identity);
            format!(
                "{:?}",
                schema.list_map_keys.iter().map(value).collect::<Vec<_>>()
            )
        })
        .collect();
    repeated_texts(values.into_iter())
        .take(MOST_ERRORS)
        .for_each(|index| errors.push(Error::duplicate(&path.index(index), &keys[index])));
}

/// What tells a value from others. As upstream has it: numbers with and without a fraction are two when they stand alone,
/// and equal inside of anything else.
fn identity(value: &Value) -> String {
    match value {
        Value::Number(number) if number.as_i64().is_none() => {
            format!("float {}", number.as_f64().unwrap_or_default())
        }
        Value::Number(_) => value.to_string(),
        _ => plain(value).to_string(),
    }
}

/// A value without fractions that are zero.
fn plain(value: &Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15 => {
                (float as i64).into()
            }
            _ => value.clone(),
        },
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Object(map) => {
            let members = map.iter().map(|(key, value)| (key.clone(), plain(value)));
            Value::Object(members.collect())
        }
        _ => value.clone(),
    }
}

/// The second place of every value that is there more than once.
fn repeated(items: &[Value]) -> std::vec::IntoIter<usize> {
    repeated_texts(items.iter().map(identity))
}

fn repeated_texts(texts: impl Iterator<Item = String>) -> std::vec::IntoIter<usize> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut places = Vec::new();
    for (index, text) in texts.enumerate() {
        let count = seen.entry(text).or_default();
        *count += 1;
        if *count == 2 {
            places.push(index);
        }
    }
    places.into_iter()
}
