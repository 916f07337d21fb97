//! What an object that is already a tree becomes as a built-in type. Upstream decodes the text of an object with Go's
//! decoder, and the result of an apply or of a strategic merge patch with a converter of its own, which takes numbers
//! more freely and has other messages.

use serde_json::{Number, Value};

use super::scalar;
use crate::types::{Field, Struct, Type};

/// Converts numbers to the types of their fields.
///
/// # Errors
/// Upstream's message for the first value that does not fit. Types that have a parser of their own are left to it.
pub fn from_unstructured(value: &mut Value, schema: &'static Struct) -> Result<(), String> {
    structure(value, schema)
}

/// Go's name for what a value is.
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

fn structure(value: &mut Value, schema: &'static Struct) -> Result<(), String> {
    if schema.alias.is_some() || value.is_null() {
        return Ok(());
    }
    let Value::Object(map) = value else {
        return Err(format!("cannot restore struct from: {}", kind(value)));
    };
    // The order of Go's fields is that of their numbers, nearly always.
    let mut wrong: Option<(u16, String)> = None;
    for (key, value) in map.iter_mut() {
        let Some(field) = schema.field(key) else {
            continue;
        };
        if let Err(text) = member(value, field)
            && wrong
                .as_ref()
                .is_none_or(|(number, _)| field.proto < *number)
        {
            wrong = Some((field.proto, text));
        }
    }
    wrong.map_or(Ok(()), |(_, text)| Err(text))
}

fn member(value: &mut Value, field: &'static Field) -> Result<(), String> {
    typed(value, &field.ty, field.go_type)
}

fn typed(value: &mut Value, ty: &'static Type, go_type: Option<&str>) -> Result<(), String> {
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
            // Bytes come as text, which their own decoder judges.
            if matches!((ty, &value), (Type::Bytes, Value::String(_))) {
                return Ok(());
            }
            return Err(format!("cannot restore slice from {}", kind(value)));
        }
        (Type::Map(element), Value::Object(members)) => {
            return members
                .values_mut()
                .try_for_each(|item| typed(item, element, None));
        }
        (Type::Map(_), value) => return Err(format!("cannot restore map from {}", kind(value))),
        _ => {}
    }
    // It parses itself, without a name around it.
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
    let unknown = || Err(format!("unrecognized type: {plain}"));
    match (ty, &*value) {
        (Type::String, Value::String(_)) | (Type::Bool, Value::Bool(_)) => Ok(()),
        (Type::String, Value::Number(number)) if number.is_i64() => {
            let shown = go_type.map_or_else(|| scalar::go_type(ty), str::to_owned);
            Err(format!("cannot convert int64 to {shown}"))
        }
        (Type::Int32 | Type::Int64 | Type::Double, Value::Number(number)) => {
            match converted(number, ty) {
                Some(number) => {
                    *value = Value::Number(number);
                    Ok(())
                }
                None => {
                    let shown = go_type.map_or_else(|| scalar::go_type(ty), str::to_owned);
                    Err(format!("cannot convert float64 to {shown}"))
                }
            }
        }
        _ => unknown(),
    }
}

/// Types with a parser of their own read the JSON text of the value, which has no field's name around it.
fn parsed(value: &Value, ty: &Type) -> Result<(), String> {
    if let Some(text) =
        scalar::collection_text(ty).filter(|_| value.is_array() || value.is_object())
    {
        return Err(text);
    }
    match scalar::convert(value.clone(), ty) {
        Ok(_) => Ok(()),
        Err(scalar::Error::Text(text)) => Err(text),
        Err(scalar::Error::Mismatch(found)) => Err(format!(
            "json: cannot unmarshal {found} into Go value of type {}",
            scalar::go_type(ty)
        )),
    }
}

/// The number in another type, as Go converts it: too large a number loses its upper bits.
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
            // What does not fit becomes the smallest number on x86-64.
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

    fn convert(mut value: Value) -> Result<Value, String> {
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
            replicas(json!(1.5)).unwrap_err(),
            "cannot convert float64 to int32"
        );
        assert_eq!(
            replicas(json!("1")).unwrap_err(),
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
            assert_eq!(convert(value).unwrap_err(), text);
        }
    }
}
