//! JSON with the fields of built-in types in the order of upstream's structs.
//!
//! Upstream writes fields in declaration order, which is that of the protobuf numbers; people compare such output
//! and read it. Fields that the type does not know follow by name.

use std::io::Write;
use std::sync::{Arc, OnceLock};

use allot_schema::types::{Field, Struct, Type};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use serde_json::{Map, Value};

/// Fields of a struct by number.
type Order = Arc<Vec<&'static Field>>;

fn order(structure: &'static Struct) -> Order {
    static KNOWN: OnceLock<RwLock<FxHashMap<&'static str, Order>>> = OnceLock::new();
    let known = KNOWN.get_or_init(RwLock::default);
    if let Some(order) = known.read().get(structure.name) {
        return order.clone();
    }
    let mut fields: Vec<&'static Field> = structure.fields.iter().collect();
    fields.sort_by_key(|field| {
        if field.proto == 0 {
            u16::MAX
        } else {
            field.proto
        }
    });
    let order = Arc::new(fields);
    known.write().insert(structure.name, order.clone());
    order
}

/// Any value; without a type, as it is.
pub fn plain(out: &mut Vec<u8>, value: &Value) {
    // Writing JSON to memory does not fail.
    let _ = serde_json::to_writer(out, value);
}

fn key(out: &mut Vec<u8>, first: &mut bool, name: &str) {
    if !std::mem::replace(first, false) {
        out.push(b',');
    }
    let _ = serde_json::to_writer(&mut *out, name);
    out.push(b':');
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
    for field in order(structure).iter() {
        if let Some(value) = map.get(field.name) {
            key(out, &mut first, field.name);
            typed(out, value, &field.ty);
        }
    }
    for (name, value) in map {
        if structure.field(name).is_none() {
            key(out, &mut first, name);
            plain(out, value);
        }
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
    body(out, map, schema, &mut first);
    out.push(b'}');
}

fn body(out: &mut Vec<u8>, map: &Map<String, Value>, schema: &'static Struct, first: &mut bool) {
    for field in order(schema).iter() {
        if !matches!(field.name, "kind" | "apiVersion")
            && let Some(value) = map.get(field.name)
        {
            key(out, first, field.name);
            typed(out, value, &field.ty);
        }
    }
    for (name, value) in map {
        if !matches!(name.as_str(), "kind" | "apiVersion") && schema.field(name).is_none() {
            key(out, first, name);
            plain(out, value);
        }
    }
}

/// The stored form of an object: without kind and apiVersion, and with an empty resourceVersion whose offset is
/// the second part of the answer.
pub fn stored(value: &Value, schema: Option<&'static Struct>) -> (Vec<u8>, usize) {
    let empty = Map::new();
    let map = value.as_object().unwrap_or(&empty);
    let metadata = map
        .get("metadata")
        .and_then(Value::as_object)
        .unwrap_or(&empty);
    let mut out = Vec::with_capacity(1024);
    let _ = out.write_all(b"{\"metadata\":{");
    let meta_type = allot_schema::types::object_meta();
    let (mut first, mut revision_at) = (true, 0);
    for field in order(meta_type).iter() {
        if field.name == "resourceVersion" {
            key(&mut out, &mut first, field.name);
            out.push(b'"');
            revision_at = out.len();
            out.push(b'"');
        } else if let Some(value) = metadata.get(field.name) {
            key(&mut out, &mut first, field.name);
            typed(&mut out, value, &field.ty);
        }
    }
    for (name, value) in metadata {
        if meta_type.field(name).is_none() {
            key(&mut out, &mut first, name);
            plain(&mut out, value);
        }
    }
    out.push(b'}');
    let mut first = false;
    let mut write = |name: &str, value: &Value, ty: Option<&Type>| {
        if matches!(name, "metadata" | "kind" | "apiVersion") {
            return;
        }
        key(&mut out, &mut first, name);
        match ty {
            Some(ty) => typed(&mut out, value, ty),
            None => plain(&mut out, value),
        }
    };
    if let Some(schema) = schema {
        for field in order(schema).iter() {
            if let Some(value) = map.get(field.name) {
                write(field.name, value, Some(&field.ty));
            }
        }
    }
    for (name, value) in map {
        if schema.is_none_or(|schema| schema.field(name).is_none()) {
            write(name, value, None);
        }
    }
    out.push(b'}');
    (out, revision_at)
}

#[cfg(test)]
mod tests;
