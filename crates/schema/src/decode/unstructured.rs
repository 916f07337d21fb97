//! Conversion of an unstructured object to a built-in type. Upstream decodes the text of an object with Go's decoder, and
//! the result of an apply or of a strategic merge patch with `runtime.DefaultUnstructuredConverter`, which accepts more
//! numbers and has other messages.

use serde_json::{Number, Value};

use super::scalar;
use crate::types::{Struct, Type};

/// Why a value cannot be converted to the type of its field; the texts are those of upstream's converter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    /// A struct is expected; the value is of this kind.
    #[error("cannot restore struct from: {0}")]
    Struct(&'static str),
    /// A slice is expected; the value is of this kind.
    #[error("cannot restore slice from {0}")]
    Slice(&'static str),
    /// A map is expected; the value is of this kind.
    #[error("cannot restore map from {0}")]
    Map(&'static str),
    /// The converter does not convert values of this kind to a scalar of this Go type.
    #[error("unrecognized type: {0}")]
    Unrecognized(&'static str),
    /// A number cannot be converted to the Go type of the field.
    #[error("cannot convert {from} to {to}")]
    Number {
        /// The Go type of the number.
        from: &'static str,
        /// The Go type of the field.
        to: String,
    },
    /// The parser of the type rejects the value.
    #[error("{0}")]
    Parser(String),
}

/// Converts numbers to the types of their fields.
///
/// # Errors
/// The first value that cannot be converted, in the order of the fields. Types with their own parser are left to it.
pub fn from_unstructured(value: &mut Value, schema: &'static Struct) -> Result<(), ConvertError> {
    structure(value, schema)
}

/// The name of a value's Go kind.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

fn structure(value: &mut Value, schema: &'static Struct) -> Result<(), ConvertError> {
    if schema.alias.is_some() || value.is_null() {
        return Ok(());
    }
    let Value::Object(map) = value else {
        return Err(ConvertError::Struct(kind(value)));
    };
    // The order of Go's fields is that of their numbers, nearly always.
    let mut first: Option<(u16, ConvertError)> = None;
    for (key, value) in map.iter_mut() {
        let Some(field) = schema.field(key) else {
            continue;
        };
        if let Err(error) = typed(value, &field.ty, field.go_type)
            && first
                .as_ref()
                .is_none_or(|(number, _)| field.proto < *number)
        {
            first = Some((field.proto, error));
        }
    }
    first.map_or(Ok(()), |(_, error)| Err(error))
}

/// Converts a value of a type; `go_type` is the name of the type in Go if that is not the usual one.
fn typed(value: &mut Value, ty: &'static Type, go_type: Option<&str>) -> Result<(), ConvertError> {
    if value.is_null() {
        return Ok(());
    }
    let of_elements = go_type.and_then(|name| name.strip_prefix("[]"));
    match (ty, &mut *value) {
        (Type::Struct(id), value) => return structure(value, id.get()),
        (Type::List(element), Value::Array(items)) => {
            return items
                .iter_mut()
                .try_for_each(|item| typed(item, element, of_elements));
        }
        (Type::List(_) | Type::Bytes, value) => {
            // Bytes are base64 text, which their own decoder checks.
            if matches!((ty, &value), (Type::Bytes, Value::String(_))) {
                return Ok(());
            }
            return Err(ConvertError::Slice(kind(value)));
        }
        (Type::Map(element), Value::Object(members)) => {
            return members
                .values_mut()
                .try_for_each(|item| typed(item, element, None));
        }
        (Type::Map(_), value) => return Err(ConvertError::Map(kind(value))),
        _ => {}
    }
    if matches!(
        ty,
        Type::Time | Type::MicroTime | Type::Duration | Type::Quantity | Type::IntOrString
    ) {
        return parsed(value, ty);
    }
    let plain = match ty {
        Type::String => "string",
        Type::Bool => "bool",
        Type::Int32 => "int32",
        Type::Int64 => "int64",
        Type::Double => "float64",
        _ => return Ok(()),
    };
    let inexact = |from| {
        Err(ConvertError::Number {
            from,
            to: go_type.map_or_else(|| scalar::go_type(ty), str::to_owned),
        })
    };
    match (ty, &*value) {
        (Type::String, Value::String(_)) | (Type::Bool, Value::Bool(_)) => Ok(()),
        (Type::String, Value::Number(number)) if number.is_i64() => inexact("int64"),
        (Type::Int32 | Type::Int64 | Type::Double, Value::Number(number)) => {
            match converted(number, ty) {
                Some(number) => {
                    *value = Value::Number(number);
                    Ok(())
                }
                None => inexact("float64"),
            }
        }
        _ => Err(ConvertError::Unrecognized(plain)),
    }
}

/// Checks a value of a type with its own parser. The parser reads the JSON text of the value alone, so that its errors do
/// not name the field.
fn parsed(value: &Value, ty: &Type) -> Result<(), ConvertError> {
    if let Some(text) =
        scalar::collection_text(ty).filter(|_| value.is_array() || value.is_object())
    {
        return Err(ConvertError::Parser(text));
    }
    match scalar::convert(value.clone(), ty) {
        Ok(_) => Ok(()),
        Err(scalar::Error::Text(text)) => Err(ConvertError::Parser(text)),
        Err(scalar::Error::Mismatch(found)) => Err(unread(found, ty)),
        Err(scalar::Error::Number(number)) => Err(unread(&format!("number {number}"), ty)),
    }
}

fn unread(found: &str, ty: &Type) -> ConvertError {
    let wanted = scalar::go_type(ty);
    ConvertError::Parser(format!(
        "json: cannot unmarshal {found} into Go value of type {wanted}"
    ))
}

/// The number in another type, as Go converts it: a number that is too large loses its upper bits. `None` for a number
/// with a fraction, if the type is an integer.
fn converted(number: &Number, ty: &Type) -> Option<Number> {
    if *ty == Type::Double {
        return Some(number.clone());
    }
    let whole = match number.as_i64() {
        Some(whole) => whole,
        None => {
            let float = number.as_f64()?;
            if float.trunc() != float {
                return None;
            }
            // Out of range, Go's conversion yields the smallest integer on x86-64.
            match float >= -(2f64.powi(63)) && float < 2f64.powi(63) {
                true => float as i64,
                false => i64::MIN,
            }
        }
    };
    Some(match ty {
        Type::Int32 => Number::from(whole as i32),
        _ => Number::from(whole),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::types::lookup;

    fn convert(mut value: Value) -> Result<Value, ConvertError> {
        let schema = lookup("apps", "v1", "Deployment").unwrap();
        from_unstructured(&mut value, schema).map(|()| value)
    }

    #[test]
    fn numbers_take_the_type_of_their_field() {
        let replicas = |number: Value| convert(json!({"spec": {"replicas": number}}));
        assert_eq!(replicas(json!(2.0)).unwrap()["spec"]["replicas"], 2);
        let wrapped = replicas(json!(2_147_483_648_i64)).unwrap();
        assert_eq!(wrapped["spec"]["replicas"], -2_147_483_648_i64);
        assert_eq!(
            replicas(json!(1.5)).unwrap_err().to_string(),
            "cannot convert float64 to int32"
        );
        assert_eq!(
            replicas(json!("1")).unwrap_err().to_string(),
            "unrecognized type: int32"
        );
    }

    #[test]
    fn what_does_not_fit_has_the_converters_words() {
        for (value, text) in [
            (json!({"spec": 1}), "cannot restore struct from: int64"),
            (
                json!({"metadata": {"labels": true}}),
                "cannot restore map from bool",
            ),
            (
                json!({"spec": {"template": {"spec": {"containers": "a"}}}}),
                "cannot restore slice from string",
            ),
            (
                json!({"metadata": {"name": 1}}),
                "cannot convert int64 to string",
            ),
            (
                json!({"metadata": {"name": {}}}),
                "unrecognized type: string",
            ),
        ] {
            assert_eq!(convert(value).unwrap_err().to_string(), text);
        }
    }
}
