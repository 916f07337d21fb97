//! JSON documents as values, read with the types that they are declared with.

use serde_json::{Map as JsonMap, Value as Json};

use super::{List, Map, Timestamp, Value};
use crate::{
    decl_type::{DeclType, Shape},
    types::Type,
};

impl DeclType {
    /// The value of a JSON document of this type. Data that does not match the type is read by its
    /// JSON type.
    pub fn value<'a>(&'a self, json: &'a Json) -> Value<'a> {
        value(json, self)
    }
}

pub(super) fn value<'a>(json: &'a Json, ty: &'a DeclType) -> Value<'a> {
    match (json, ty.shape()) {
        (Json::Null, _) => Value::Null,
        (Json::Bool(value), _) => Value::Bool(*value),
        (Json::Number(number), _) => match (ty.ty(), number.as_i64()) {
            (Type::Double, _) | (_, None) => Value::Double(number.as_f64().unwrap_or(f64::NAN)),
            (_, Some(int)) => Value::Int(int),
        },
        (Json::String(text), _) => scalar(text, ty.ty()),
        (Json::Array(elements), Shape::List(element)) => Value::List(List::Json(elements, element)),
        (Json::Array(elements), _) => Value::List(List::Json(elements, dynamic())),
        (Json::Object(fields), Shape::Object { .. } | Shape::Map(..)) => {
            Value::Map(Map::Json(fields, ty))
        }
        (Json::Object(fields), Shape::Scalar | Shape::List(_)) => {
            Value::Map(Map::Json(fields, dynamic()))
        }
    }
}

fn scalar<'a>(text: &'a str, ty: &Type) -> Value<'a> {
    let special = match ty {
        Type::Timestamp => Timestamp::parse(text)
            .or_else(|| Timestamp::parse_date(text))
            .map(Value::Timestamp),
        Type::Duration => super::time::parse_duration(text).map(Value::Duration),
        Type::Bytes => {
            decode_base64(text).map(|bytes| Value::Bytes(super::Handle::Shared(bytes.into())))
        }
        _ => None,
    };
    special.unwrap_or(Value::str(text))
}

/// The type of everything that is not declared.
fn dynamic() -> &'static DeclType {
    static DYN: std::sync::LazyLock<DeclType> =
        std::sync::LazyLock::new(|| DeclType::scalar(Type::Dyn, 0));
    &DYN
}

pub(super) fn field<'a>(
    fields: &'a JsonMap<String, Json>,
    ty: &'a DeclType,
    name: &str,
) -> Option<Value<'a>> {
    match ty.shape() {
        Shape::Object { .. } => {
            let declared = ty.field(name)?;
            fields
                .get(declared.property(name))
                .map(|json| value(json, declared))
        }
        Shape::Map(_, element) => fields.get(name).map(|json| value(json, element)),
        _ => fields.get(name).map(|json| value(json, dynamic())),
    }
}

pub(super) fn keys<'a>(fields: &'a JsonMap<String, Json>, _ty: &'a DeclType) -> Vec<Value<'a>> {
    fields.keys().map(|key| Value::str(key)).collect()
}

/// Reads standard base64 with padding.
pub(crate) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| match b {
        b'A'..=b'Z' => Some(b - b'A'),
        b'a'..=b'z' => Some(b - b'a' + 26),
        b'0'..=b'9' => Some(b - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let bytes: Vec<u8> = text
        .bytes()
        .filter(|b| !matches!(b, b'\r' | b'\n'))
        .collect();
    if !bytes.len().is_multiple_of(4) {
        return None;
    }
    let mut out = Vec::with_capacity(bytes.len() / 4 * 3);
    let chunks = bytes.chunks(4);
    let last = chunks.len().saturating_sub(1);
    for (i, chunk) in chunks.enumerate() {
        let padding = chunk.iter().rev().take_while(|b| **b == b'=').count();
        if padding > 2 || (padding > 0 && i != last) {
            return None;
        }
        let mut bits = 0_u32;
        for b in &chunk[..4 - padding] {
            bits = bits << 6 | u32::from(digit(*b)?);
        }
        bits <<= 6 * padding;
        out.extend_from_slice(&bits.to_be_bytes()[1..4 - padding]);
    }
    Some(out)
}
