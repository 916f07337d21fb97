//! Filling in defaults.

use serde_json::Value;

use super::{Additional, Structural};

/// Sets the defaults of absent fields; a null where null is no value counts as absent.
pub fn default(value: &mut Value, schema: &Structural) {
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
                {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (key, value) in map.iter_mut() {
                if let Some(property) = schema.properties.get(key) {
                    default(value, property);
                } else if let Additional::Schema(sub) = &schema.additional {
                    default_item(value, sub);
                }
            }
        }
        Value::Array(items) => {
            if let Some(sub) = &schema.items {
                items.iter_mut().for_each(|item| default_item(item, sub));
            }
        }
        _ => {}
    }
}

fn default_item(value: &mut Value, schema: &Structural) {
    if value.is_null()
        && !schema.nullable
        && let Some(default) = &schema.default
    {
        *value = default.clone();
    }
    default(value, schema);
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
