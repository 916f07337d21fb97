//! JSON with the fields of built-in types in the order of upstream's structs.
//!
//! Upstream writes fields in declaration order, which is that of the protobuf numbers; people compare such output
//! and read it. Fields that the type does not know follow by name.

use allot_schema::apply::Managed;
use allot_schema::types::{Field, Struct, Type};
use serde_json::{Map, Value};

/// Any value; without a type, as it is.
pub fn plain(out: &mut Vec<u8>, value: &Value) {
    // Writing JSON to memory does not fail.
    let _ = serde_json::to_writer(out, value);
}

/// A member's name, with what separates it from the one before. Field names need no escaping.
fn key(out: &mut Vec<u8>, first: &mut bool, name: &str) {
    if !std::mem::replace(first, false) {
        out.push(b',');
    }
    if name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        out.push(b'"');
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":");
    } else {
        let _ = serde_json::to_writer(&mut *out, name);
        out.push(b':');
    }
}

/// The members of an object as its type orders them, each with its field; unknown ones follow by name.
fn members<'a>(
    map: &'a Map<String, Value>,
    structure: &'static Struct,
) -> Vec<(&'a str, &'a Value, Option<&'static Field>)> {
    let mut members: Vec<_> = map
        .iter()
        .map(|(name, value)| (name.as_str(), value, structure.field(name)))
        .collect();
    members.sort_by_key(|(_, _, field)| match field {
        Some(field) if field.proto > 0 => u32::from(field.proto),
        Some(_) => u32::from(u16::MAX),
        None => u32::MAX,
    });
    members
}

fn member(out: &mut Vec<u8>, value: &Value, field: Option<&'static Field>) {
    match field {
        Some(field) => typed(out, value, &field.ty),
        None => plain(out, value),
    }
}

fn typed(out: &mut Vec<u8>, value: &Value, ty: &Type) {
    match (value, ty) {
        (Value::Object(map), Type::Struct(id)) => structure(out, map, id.get()),
        (Value::Array(items), Type::List(element)) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                typed(out, item, element);
            }
            out.push(b']');
        }
        (Value::Object(map), Type::Map(element)) => {
            out.push(b'{');
            let mut first = true;
            for (name, item) in map {
                key(out, &mut first, name);
                typed(out, item, element);
            }
            out.push(b'}');
        }
        _ => plain(out, value),
    }
}

fn structure(out: &mut Vec<u8>, map: &Map<String, Value>, structure: &'static Struct) {
    out.push(b'{');
    let mut first = true;
    for (name, value, field) in members(map, structure) {
        key(out, &mut first, name);
        member(out, value, field);
    }
    out.push(b'}');
}

/// A whole object: kind and apiVersion, then the fields of its type.
pub fn object(out: &mut Vec<u8>, value: &Value, schema: Option<&'static Struct>) {
    let (Value::Object(map), Some(schema)) = (value, schema) else {
        return plain(out, value);
    };
    out.push(b'{');
    let mut first = true;
    for name in ["kind", "apiVersion"] {
        if let Some(value) = map.get(name) {
            key(out, &mut first, name);
            plain(out, value);
        }
    }
    for (name, value, field) in members(map, schema) {
        if !matches!(name, "kind" | "apiVersion") {
            key(out, &mut first, name);
            member(out, value, field);
        }
    }
    out.push(b'}');
}

/// The stored form of an object: without kind, with the `apiVersion` that is given if one is, and with an empty
/// resourceVersion whose offset is the second part of the answer. Owners that come apart from the object replace those
/// in it.
pub fn stored(
    value: &Value,
    owners: Option<&Managed>,
    schema: Option<&'static Struct>,
    api_version: Option<&str>,
) -> (Vec<u8>, usize) {
    let empty = Map::new();
    let map = value.as_object().unwrap_or(&empty);
    let metadata = map
        .get("metadata")
        .and_then(Value::as_object)
        .unwrap_or(&empty);
    let mut out = Vec::with_capacity(2048);
    out.extend_from_slice(b"{\"metadata\":{");
    let revision_at = stored_metadata(&mut out, metadata, owners);
    out.push(b'}');
    let mut first = false;
    if let Some(api_version) = api_version.filter(|it| !it.is_empty()) {
        key(&mut out, &mut first, "apiVersion");
        plain(&mut out, &api_version.into());
    }
    let mut write = |name: &str, value: &Value, field: Option<&'static Field>| {
        if !matches!(name, "metadata" | "kind" | "apiVersion") {
            key(&mut out, &mut first, name);
            member(&mut out, value, field);
        }
    };
    match schema {
        Some(schema) => {
            for (name, value, field) in members(map, schema) {
                write(name, value, field);
            }
        }
        None => map
            .iter()
            .for_each(|(name, value)| write(name, value, None)),
    }
    out.push(b'}');
    (out, revision_at)
}

fn stored_metadata(
    out: &mut Vec<u8>,
    metadata: &Map<String, Value>,
    owners: Option<&Managed>,
) -> usize {
    const VERSION: &str = "resourceVersion";
    const OWNERS: &str = "managedFields";
    let meta_type = allot_schema::types::object_meta();
    let version = Value::Null;
    let mut members = members(metadata, meta_type);
    members.retain(|(name, _, _)| *name != VERSION && !(owners.is_some() && *name == OWNERS));
    members.push((VERSION, &version, meta_type.field(VERSION)));
    members.sort_by_key(|(_, _, field)| field.map_or(u16::MAX, |field| field.proto));
    let (mut first, mut revision_at) = (true, 0);
    for (name, value, field) in members {
        key(out, &mut first, name);
        if name == VERSION {
            out.push(b'"');
            revision_at = out.len();
            out.push(b'"');
        } else {
            member(out, value, field);
        }
    }
    if let Some(owners) = owners.filter(|owners| !owners.is_empty()) {
        // The last field of the type.
        key(out, &mut first, OWNERS);
        owners.write_json(out);
    }
    revision_at
}

#[cfg(test)]
mod tests;
