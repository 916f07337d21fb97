//! Metadata of custom objects: decoded as ObjectMeta, which drops unknown fields and rejects values of a wrong type.

use allot_apimachinery::field::{Error, Path};
use serde_json::Value;

use super::{Additional, Structural};
use crate::{
    decode::{self, DecodeError},
    types,
};

/// Decodes the metadata of an object. Returns the fields that were dropped, such as `metadata.foo`.
///
/// # Errors
/// A value has the wrong type.
pub fn coerce_metadata(object: &mut Value) -> Result<Vec<String>, DecodeError> {
    coerce_at(object, "")
}

/// Decodes the metadata of all embedded objects. Returns the fields that were dropped, sorted.
///
/// # Errors
/// A description of the first value that cannot be decoded.
pub fn coerce_embedded(object: &mut Value, schema: &Structural) -> Result<Vec<String>, Box<Error>> {
    let mut unknown = Vec::new();
    walk(object, schema, &Path::root(), &mut unknown)?;
    unknown.sort();
    Ok(unknown)
}

fn coerce_at(object: &mut Value, parent: &str) -> Result<Vec<String>, DecodeError> {
    let Some(metadata) = object.get_mut("metadata") else {
        return Ok(Vec::new());
    };
    let sent = match metadata.take() {
        Value::Null => Value::Object(serde_json::Map::new()),
        sent => sent,
    };
    let decoded = decode::decode_value(sent, types::object_meta())?;
    *metadata = decoded.value;
    let dot = if parent.is_empty() { "" } else { "." };
    let field = |text: &String| {
        let name = text.strip_prefix("unknown field \"")?.strip_suffix('"')?;
        Some(format!("{parent}{dot}metadata.{name}"))
    };
    Ok(decoded.strict.iter().filter_map(field).collect())
}

fn walk(
    value: &mut Value,
    schema: &Structural,
    path: &Path,
    unknown: &mut Vec<String>,
) -> Result<(), Box<Error>> {
    if schema.embedded && value.is_object() {
        for key in ["apiVersion", "kind"] {
            if let Some(found) = value.get(key).filter(|found| !found.is_string()) {
                return Err(Box::new(Error::invalid(
                    &path.child(key),
                    found,
                    "must be a string",
                )));
            }
        }
        let sent = value
            .get("metadata")
            .filter(|sent| !sent.is_object())
            .cloned();
        let dropped = coerce_at(value, &path.to_string()).map_err(|error| {
            let shown = sent.unwrap_or_default();
            let detail = error.to_string();
            Box::new(Error::invalid(&path.child("metadata"), &shown, detail))
        })?;
        unknown.extend(dropped);
    }
    match value {
        Value::Object(map) => {
            for (key, value) in map.iter_mut() {
                let (below, at) = match (schema.properties.get(key), &schema.additional) {
                    (Some(property), _) => (property, path.child(key)),
                    (None, Additional::Schema(below)) => (&**below, path.key(key)),
                    _ => continue,
                };
                walk(value, below, &at, unknown)?;
            }
        }
        Value::Array(items) => {
            if let Some(below) = schema.items.as_deref() {
                for (index, item) in items.iter_mut().enumerate() {
                    walk(item, below, &path.index(index), unknown)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}
