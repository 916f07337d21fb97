//! Zero values: which the Go encoder leaves out and which it writes.

use std::sync::OnceLock;

use serde_json::{Map, Value};

use super::Shape;
use crate::types::{self, Field, Struct, Type};

/// The schema type of CRDs, in which two field types nest.
pub(super) fn json_schema() -> Option<&'static Struct> {
    static SCHEMA: OnceLock<Option<types::StructId>> = OnceLock::new();
    SCHEMA
        .get_or_init(|| {
            types::by_name(
                "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
            )
        })
        .map(types::StructId::get)
}

/// What a null in a list or map becomes in Go: the zero value of the element.
pub(super) fn null_element(element: Shape<'_>) -> Value {
    match element {
        Shape::Untyped | Shape::Raw => Value::Null,
        Shape::Struct(structure) => zero_struct(structure),
        Shape::Typed(ty, _) => zero(ty),
    }
}

/// The zero value of a type as the Go encoder writes it.
pub fn zero(ty: &Type) -> Value {
    match ty {
        Type::String => Value::String(String::new()),
        Type::Bool => Value::Bool(false),
        Type::Int32 | Type::Int64 | Type::Double | Type::IntOrString => Value::from(0),
        Type::Quantity => Value::from("0"),
        Type::Duration => Value::from("0s"),
        Type::Struct(id) => zero_struct(id.get()),
        Type::Bytes
        | Type::Time
        | Type::MicroTime
        | Type::Raw
        | Type::Json
        | Type::SchemaOrBool
        | Type::SchemaOrArray
        | Type::List(_)
        | Type::Map(_) => Value::Null,
    }
}

fn zero_struct(structure: &'static Struct) -> Value {
    let mut map = Map::new();
    settle(structure, &mut map);
    Value::Object(map)
}

/// Drops the fields of a decoded struct that the encoder would leave out and adds those it would write.
pub(super) fn settle(structure: &'static Struct, map: &mut Map<String, Value>) {
    settle_fields(structure, map, |_, _| false);
}

/// As [`settle`], but empty lists and maps stay; answers whether there are any.
pub(super) fn settle_sent(structure: &'static Struct, map: &mut Map<String, Value>) -> bool {
    let mut has_empties = false;
    settle_fields(structure, map, |field, value| {
        let empty = is_empty_collection(field, value);
        has_empties |= empty;
        empty
    });
    has_empties
}

fn settle_fields(
    structure: &'static Struct,
    map: &mut Map<String, Value>,
    mut keeps: impl FnMut(&Field, &Value) -> bool,
) {
    map.retain(|name, value| {
        structure.field(name).is_none_or(|field| {
            !value.is_null() && (!left_out(field, value) || keeps(field, value))
        })
    });
    for field in structure.always() {
        if !map.contains_key(field.name) {
            map.insert(field.name.to_owned(), written_zero(field));
        }
    }
}

fn left_out(field: &Field, value: &Value) -> bool {
    if field.pointer {
        return false;
    }
    if field.omit_zero && matches!(value, Value::Object(map) if map.is_empty()) {
        return true;
    }
    if !field.omit_empty || field.ty.is_struct() {
        return false;
    }
    match value {
        Value::String(text) => text.is_empty(),
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty() && matches!(field.ty, Type::Map(_)),
        Value::Null => true,
    }
}

/// A list or map without elements that the encoder leaves out.
pub(super) fn is_empty_collection(field: &Field, value: &Value) -> bool {
    let empty = match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty() && matches!(field.ty, Type::Map(_)),
        _ => false,
    };
    empty && left_out(field, value)
}

/// What the encoder writes for such a field.
fn written_zero(field: &Field) -> Value {
    if field.pointer {
        Value::Null
    } else {
        zero(&field.ty)
    }
}

/// Brings an object that is known to fit its type into the stored form again, after something changed it in place.
pub fn normalize(value: &mut Value, structure: &'static Struct) {
    let Value::Object(map) = value else { return };
    // Most fields of an object are usually unset.
    for (name, value) in map.iter_mut() {
        if let Some(field) = structure.field(name) {
            normalize_type(value, &field.ty);
        }
    }
    settle(structure, map);
}

fn normalize_type(value: &mut Value, ty: &Type) {
    match (ty, value) {
        (Type::Struct(id), value) => normalize(value, id.get()),
        (Type::List(element), Value::Array(items)) => items
            .iter_mut()
            .for_each(|item| normalize_type(item, element)),
        (Type::Map(element), Value::Object(map)) => map
            .values_mut()
            .for_each(|item| normalize_type(item, element)),
        (Type::SchemaOrBool | Type::SchemaOrArray, value) => {
            if let Some(schema) = json_schema() {
                normalize(value, schema);
            }
        }
        _ => {}
    }
}
