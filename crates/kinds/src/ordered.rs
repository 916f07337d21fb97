//! JSON with the fields of built-in types in the order of upstream's structs.
//!
//! Upstream writes fields in declaration order, which is that of the protobuf numbers; users compare such output.
//! Fields that the type does not have follow by name.

use allot_apimachinery::quote::write_json;
use allot_schema::apply::Managed;
use allot_schema::protobuf::RawWriter;
use allot_schema::types::{Field, Struct, Type};
use serde_json::{Map, Value};

/// Any value; without a type, as it is.
pub fn plain(out: &mut Vec<u8>, value: &Value) {
    // Writing JSON to memory does not fail.
    let _ = write_json(out, value);
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
    // The only struct of which a field was declared out of turn.
    let of_owner = structure.name.ends_with(".OwnerReference");
    members.sort_by_key(|(name, _, field)| match field {
        Some(_) if of_owner && *name == "apiVersion" => 0,
        Some(field) if field.proto > 0 => u32::from(field.proto),
        Some(_) => u32::from(u16::MAX),
        None => u32::MAX,
    });
    members
}

/// The members of an object without a type.
fn untyped(map: &Map<String, Value>) -> Vec<(&str, &Value, Option<&'static Field>)> {
    map.iter()
        .map(|(name, value)| (name.as_str(), value, None))
        .collect()
}

/// A member; `raw` writes the fields that are raw.
fn member(out: &mut Vec<u8>, value: &Value, field: Option<&'static Field>, raw: RawWriter) {
    match field {
        Some(field) => typed(out, value, &field.ty, raw),
        None => plain(out, value),
    }
}

fn typed(out: &mut Vec<u8>, value: &Value, ty: &Type, raw: RawWriter) {
    match (value, ty) {
        (Value::Object(map), Type::Struct(id)) => structure(out, map, id.get(), raw),
        (Value::Array(items), Type::List(element)) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                typed(out, item, element, raw);
            }
            out.push(b']');
        }
        (Value::Object(map), Type::Map(element)) => {
            out.push(b'{');
            let mut first = true;
            for (name, item) in map {
                key(out, &mut first, name);
                typed(out, item, element, raw);
            }
            out.push(b'}');
        }
        (value, Type::Raw) => raw(out, value),
        _ => plain(out, value),
    }
}

fn structure(
    out: &mut Vec<u8>,
    map: &Map<String, Value>,
    structure: &'static Struct,
    raw: RawWriter,
) {
    out.push(b'{');
    let mut first = true;
    for (name, value, field) in members(map, structure) {
        key(out, &mut first, name);
        member(out, value, field, raw);
    }
    out.push(b'}');
}

/// A whole object: kind and apiVersion, then the fields of its type. Without a type everything is sorted by name, apart
/// from the two in front.
pub fn object(out: &mut Vec<u8>, value: &Value, schema: Option<&'static Struct>) {
    let Value::Object(map) = value else {
        return plain(out, value);
    };
    crate::raw::rewind();
    out.push(b'{');
    let mut first = true;
    let (front, members) = match schema {
        Some(schema) => (["kind", "apiVersion"], members(map, schema)),
        None => (["apiVersion", "kind"], untyped(map)),
    };
    for name in front {
        if let Some(value) = map.get(name) {
            key(out, &mut first, name);
            plain(out, value);
        }
    }
    for (name, value, field) in members {
        if !matches!(name, "kind" | "apiVersion") {
            key(out, &mut first, name);
            member(out, value, field, crate::raw::write_json);
        }
    }
    out.push(b'}');
}

/// The field owners of an object, passed separately.
#[derive(Clone, Copy)]
pub enum Owners<'a> {
    /// Decoded owners, which are encoded.
    Read(&'a Managed),
    /// The stored text of an object of a built-in kind: unchanged owners need not be decoded.
    Text(&'a str),
}

impl Owners<'_> {
    fn is_empty(self) -> bool {
        match self {
            Owners::Read(owners) => owners.is_empty(),
            Owners::Text(text) => text.is_empty(),
        }
    }

    fn write(self, out: &mut Vec<u8>, typed: bool) {
        match self {
            Owners::Read(owners) if typed => owners.write_json(out),
            Owners::Read(owners) => owners.write_sorted_json(out),
            Owners::Text(text) => out.extend_from_slice(text.as_bytes()),
        }
    }
}

/// The stored form of an object: without kind, and with an empty resourceVersion whose offset is the second part of the
/// result. Managed fields that are passed separately replace those in it. With an `api_version`, which custom objects
/// need, it is the output of [`object`] for an object without a type, apart from the kind.
pub fn stored(
    value: &Value,
    owners: Option<Owners<'_>>,
    schema: Option<&'static Struct>,
    api_version: Option<&str>,
) -> (Vec<u8>, usize) {
    crate::raw::rewind();
    let empty = Map::new();
    let map = value.as_object().unwrap_or(&empty);
    let metadata = map
        .get("metadata")
        .and_then(Value::as_object)
        .unwrap_or(&empty);
    let api_version = api_version.filter(|it| !it.is_empty());
    let mut out = Vec::with_capacity(2048);
    out.push(b'{');
    let (mut first, mut revision_at) = (true, 0);
    if let Some(api_version) = api_version {
        key(&mut out, &mut first, "apiVersion");
        plain(&mut out, &api_version.into());
    } else {
        key(&mut out, &mut first, "metadata");
        revision_at = stored_metadata(&mut out, metadata, owners, true);
    }
    let members = match schema {
        Some(schema) => members(map, schema),
        None => untyped(map),
    };
    for (name, value, field) in members {
        match name {
            "kind" | "apiVersion" => {}
            "metadata" if api_version.is_some() => {
                key(&mut out, &mut first, name);
                revision_at = stored_metadata(&mut out, metadata, owners, false);
            }
            "metadata" => {}
            _ => {
                key(&mut out, &mut first, name);
                member(&mut out, value, field, crate::raw::write);
            }
        }
    }
    if api_version.is_some() && !map.contains_key("metadata") {
        key(&mut out, &mut first, "metadata");
        revision_at = stored_metadata(&mut out, metadata, owners, false);
    }
    out.push(b'}');
    (out, revision_at)
}

/// Metadata as an object, in the order of its type or sorted by name, and the offset of the revision.
fn stored_metadata(
    out: &mut Vec<u8>,
    metadata: &Map<String, Value>,
    owners: Option<Owners<'_>>,
    typed: bool,
) -> usize {
    const VERSION: &str = "resourceVersion";
    const OWNERS: &str = "managedFields";
    let meta_type = allot_schema::types::object_meta();
    let (version, published) = (Value::Null, Value::Null);
    let mut members = members(metadata, meta_type);
    members.retain(|(name, _, _)| *name != VERSION && !(owners.is_some() && *name == OWNERS));
    members.push((VERSION, &version, meta_type.field(VERSION)));
    let owners = owners.filter(|owners| !owners.is_empty());
    if owners.is_some() {
        members.push((OWNERS, &published, meta_type.field(OWNERS)));
    }
    if typed {
        members.sort_by_key(|(_, _, field)| field.map_or(u16::MAX, |field| field.proto));
    } else {
        members.sort_by_key(|(name, _, _)| *name);
    }
    let (mut first, mut revision_at) = (true, 0);
    out.push(b'{');
    for (name, value, field) in members {
        key(out, &mut first, name);
        match (name, owners) {
            (VERSION, _) => {
                out.push(b'"');
                revision_at = out.len();
                out.push(b'"');
            }
            (OWNERS, Some(owners)) => owners.write(out, typed),
            _ if typed => member(out, value, field, crate::raw::write),
            _ => plain(out, value),
        }
    }
    out.push(b'}');
    revision_at
}

#[cfg(test)]
mod tests;
