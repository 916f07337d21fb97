//! Dropping what a schema does not know.

use serde_json::Value;

use super::{Additional, Structural};

const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The length of the names of unknown fields, after which further ones are removed without being named. A key of a map
/// may be as long as the object, and is part of the name of every unknown field below it.
const MOST_TEXT: usize = 4 << 20;

/// The names of the unknown fields that have been removed.
#[derive(Default)]
struct Unknown {
    names: Vec<String>,
    length: usize,
}

impl Unknown {
    fn add(&mut self, name: &str) {
        if self.length <= MOST_TEXT {
            self.length += name.len();
            self.names.push(name.to_owned());
        }
    }
}

/// Removes unknown fields from a custom resource and names them, sorted, as `spec.foo`. Type and object metadata are not looked at.
pub fn prune(object: &mut Value, schema: &Structural) -> Vec<String> {
    let (mut path, mut unknown) = (String::new(), Unknown::default());
    walk(object, Some(schema), true, &mut path, &mut unknown);
    unknown.names.sort();
    unknown.names
}

/// As [`prune`] for a part of an object.
pub fn prune_value(value: &mut Value, schema: &Structural) {
    let (mut path, mut unknown) = (String::new(), Unknown::default());
    walk(value, Some(schema), false, &mut path, &mut unknown);
}

fn walk(
    value: &mut Value,
    schema: Option<&Structural>,
    root: bool,
    path: &mut String,
    unknown: &mut Unknown,
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
                        // `additionalProperties: true` keeps the key, but has no schema for its value.
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
                        unknown.add(path);
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
