//! Filling in defaults.

use serde_json::Value;

use super::{Additional, Structural};

/// The most bytes of defaults that an object gets, by [`weight`]. One that gets more is much larger than what can be
/// stored, and is refused for that: a list of a million elements of two bytes would get a default for each.
const MOST: usize = 16 << 20;
/// What a field weighs beside its name and its value.
const FIELD: usize = 64;

/// Sets the defaults of absent fields; a null where null is no value counts as absent. An object that would get more
/// than 16 MiB of them gets a part.
pub fn default(value: &mut Value, schema: &Structural) {
    fill(value, schema, &mut { MOST });
}

/// Whether something of this weight can be added. Then it is.
fn take(left: &mut usize, weight: usize) -> bool {
    match left.checked_sub(weight) {
        Some(rest) => *left = rest,
        // Nothing that is smaller is added either.
        None => *left = 0,
    }
    *left > 0
}

/// The length of a value as text, roughly and not more.
fn weight(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(weight).sum::<usize>(),
        Value::Object(map) => {
            let fields = map.iter();
            2 + fields
                .map(|(key, value)| key.len() + 3 + weight(value))
                .sum::<usize>()
        }
        _ => 1,
    }
}

fn fill(value: &mut Value, schema: &Structural, left: &mut usize) {
    match value {
        Value::Object(map) => {
            for (name, property) in &schema.properties {
                if let Some(default) = property
                    .default
                    .as_ref()
                    .filter(|default| !default.is_null())
                    && map
                        .get(name)
                        .is_none_or(|value| value.is_null() && !property.nullable)
                    && take(left, FIELD + name.len() + weight(default))
                {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (key, value) in map.iter_mut() {
                if let Some(property) = schema.properties.get(key) {
                    fill(value, property, left);
                } else if let Additional::Schema(sub) = &schema.additional {
                    fill_item(value, sub, left);
                }
            }
        }
        Value::Array(items) => {
            if let Some(sub) = &schema.items {
                items.iter_mut().for_each(|item| fill_item(item, sub, left));
            }
        }
        _ => {}
    }
}

fn fill_item(value: &mut Value, schema: &Structural, left: &mut usize) {
    if value.is_null()
        && !schema.nullable
        && let Some(default) = &schema.default
        && take(left, weight(default))
    {
        *value = default.clone();
    }
    fill(value, schema, left);
}

/// Removes nulls from fields that neither allow null nor have a default.
pub fn prune_nulls(value: &mut Value, schema: &Structural) {
    match value {
        Value::Object(map) => {
            map.retain(|key, value| {
                let of_key = match (schema.properties.get(key), &schema.additional) {
                    (Some(property), _) => Some(property),
                    (None, Additional::Schema(sub)) => Some(&**sub),
                    _ => None,
                };
                !value.is_null()
                    || of_key.is_none_or(|schema| {
                        schema.nullable || schema.default.as_ref().is_some_and(|d| !d.is_null())
                    })
            });
            for (key, value) in map.iter_mut() {
                if let Some(property) = schema.properties.get(key) {
                    prune_nulls(value, property);
                } else if let Additional::Schema(sub) = &schema.additional {
                    prune_nulls(value, sub);
                }
            }
        }
        Value::Array(items) => {
            if let Some(sub) = &schema.items {
                items.iter_mut().for_each(|item| prune_nulls(item, sub));
            }
        }
        _ => {}
    }
}
