//! Whether an object can be written in protobuf without loss.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::{head, schema_of};
use crate::types::{Struct, Type};

/// Whether a message can hold all that is in an object: what is in fields that the types do not have, or is of another
/// type, would be lost.
pub fn is_whole(object: &Value) -> bool {
    let (api_version, kind) = head(object);
    let schema = schema_of(api_version, kind);
    schema.is_some_and(|schema| has_members(object, schema, true))
}

fn has_members(value: &Value, schema: &'static Struct, top: bool) -> bool {
    let Value::Object(map) = value else {
        return value.is_null();
    };
    map.iter().all(|(key, value)| {
        let head = top && matches!(&**key, "kind" | "apiVersion");
        let field = schema.field(key).filter(|field| field.proto != 0 || head);
        field.is_some_and(|field| has(value, &field.ty))
    })
}

fn has(value: &Value, ty: &Type) -> bool {
    if value.is_null() {
        return true;
    }
    match ty {
        Type::Struct(id) => match &id.get().alias {
            Some(alias) => has(value, alias),
            None => has_members(value, id.get(), false),
        },
        Type::List(element) => {
            let items = value.as_array();
            items.is_some_and(|items| items.iter().all(|item| has(item, element)))
        }
        Type::Map(element) => {
            let entries = value.as_object();
            entries.is_some_and(|entries| entries.values().all(|item| has(item, element)))
        }
        Type::Bool => value.is_boolean(),
        Type::Int32 => is_i32(value),
        Type::Int64 => value.is_i64(),
        Type::Double => value.is_number(),
        Type::String | Type::Duration => value.is_string(),
        Type::Time | Type::MicroTime => {
            let time = value.as_str().map(str::parse::<jiff::Timestamp>);
            time.is_some_and(|time| time.is_ok())
        }
        Type::Bytes => value
            .as_str()
            .is_some_and(|text| STANDARD.decode(text).is_ok()),
        Type::Quantity => value.is_string() || value.is_number(),
        Type::IntOrString => value.is_string() || is_i32(value),
        Type::Raw | Type::Json => true,
        // No component writes definitions.
        Type::SchemaOrBool | Type::SchemaOrArray => false,
    }
}

fn is_i32(value: &Value) -> bool {
    value.as_i64().is_some_and(|n| i32::try_from(n).is_ok())
}
