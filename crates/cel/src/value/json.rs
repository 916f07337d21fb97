//! JSON documents as values, read with the types that they are declared with.

use serde_json::{Map as JsonMap, Value as Json};

use super::{List, Map, Timestamp, Value};
use crate::{
    env::{DeclType, Shape},
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
        Type::Bytes => crate::library::decode_base64(text)
            .map(|bytes| Value::Bytes(super::Handle::Shared(bytes.into()))),
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
