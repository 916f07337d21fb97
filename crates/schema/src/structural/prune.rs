//! Dropping what a schema does not know.

use serde_json::Value;

use super::{Additional, Structural};

const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes unknown fields from a custom resource and names them, sorted, as `spec.foo`. Type and object metadata are not looked at.
pub fn prune(object: &mut Value, schema: &Structural) -> Vec<String> {
    let mut unknown = Vec::new();
    let mut path = String::new();
    walk(object, Some(schema), true, &mut path, &mut unknown);
    unknown.sort();
    unknown
}

/// As [`prune`] for a part of an object.
pub fn prune_value(value: &mut Value, schema: &Structural) {
    let (mut path, mut unknown) = (String::new(), Vec::new());
    walk(value, Some(schema), false, &mut path, &mut unknown);
}

fn walk(
    value: &mut Value,
    schema: Option<&Structural>,
    root: bool,
    path: &mut String,
    unknown: &mut Vec<String>,
) {
    let preserve = schema.is_some_and(|schema| schema.preserve_unknown);
    let embedded = root || schema.is_some_and(|schema| schema.embedded);
    match value {
        Value::Object(map) => {
            let mut gone = Vec::new();
            for (key, value) in map.iter_mut() {
                if embedded && META.contains(&key.as_str()) {
                    continue;
                }
                let below = schema.and_then(|schema| {
                    match (schema.properties.get(key), &schema.additional) {
                        (Some(property), _) => Some(Some(property)),
                        (None, Additional::Schema(sub)) => Some(Some(&**sub)),
                        // `additionalProperties: true` keeps the key but knows nothing of what is in it.
                        (None, Additional::Allowed(_)) => Some(None),
                        (None, Additional::Unset) => None,
                    }
                });
                let length = path.len();
                if length > 0 {
                    path.push('.');
                }
                path.push_str(key);
                match below {
                    Some(below) => walk(value, below, false, path, unknown),
                    None if preserve => {}
                    None => {
                        unknown.push(path.clone());
                        gone.push(key.clone());
                    }
                }
                path.truncate(length);
            }
            gone.iter().for_each(|key| {
                map.remove(key);
            });
        }
        Value::Array(items) => {
            let element = schema.and_then(|schema| schema.items.as_deref());
            if preserve && element.is_none() {
                return;
            }
            for (index, item) in items.iter_mut().enumerate() {
                let length = path.len();
                path.push_str(&format!("[{index}]"));
                walk(item, element, false, path, unknown);
                path.truncate(length);
            }
        }
        _ => {}
    }
}
