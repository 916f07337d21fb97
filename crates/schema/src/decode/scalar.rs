//! Scalars: which values match which type, their stored form, and Go's error texts.

use allot_apimachinery::quantity::Quantity;
use base64::Engine as _;
use serde_json::{Number, Value};

use super::number::whole;
use crate::types::Type;

/// Why a scalar does not fit.
pub(super) enum Error {
    /// It is something else; the text is how Go calls what was found.
    Mismatch(&'static str),
    /// A number that the type does not hold.
    Number(Number),
    /// The type has its own parser, with this error.
    Text(String),
}

/// Go's name of a JSON value in an error.
pub fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Go's name of a type.
pub(super) fn go_type(ty: &Type) -> String {
    match ty {
        Type::String | Type::Duration | Type::Quantity | Type::Time | Type::MicroTime => {
            "string".to_owned()
        }
        Type::Bool => "bool".to_owned(),
        Type::Int32 | Type::IntOrString => "int32".to_owned(),
        Type::Int64 => "int64".to_owned(),
        Type::Double => "float64".to_owned(),
        Type::Bytes => "[]uint8".to_owned(),
        Type::Raw | Type::Json | Type::SchemaOrBool | Type::SchemaOrArray => {
            "interface {}".to_owned()
        }
        Type::List(element) => format!("[]{}", element_type(element)),
        Type::Map(element) => format!("map[string]{}", element_type(element)),
        Type::Struct(id) => id.get().go_name().to_owned(),
    }
}

fn element_type(ty: &Type) -> String {
    match ty {
        Type::Quantity => "resource.Quantity".to_owned(),
        Type::Time => "v1.Time".to_owned(),
        ty => go_type(ty),
    }
}

/// Whether Go leaves values of the type to a parser of its own.
pub(super) fn has_parser(ty: &Type) -> bool {
    matches!(
        ty,
        Type::Quantity
            | Type::Time
            | Type::MicroTime
            | Type::Duration
            | Type::IntOrString
            | Type::SchemaOrBool
            | Type::SchemaOrArray
    )
}

/// The error of types with their own parser for a list or an object.
pub(super) fn collection_text(ty: &Type) -> Option<String> {
    match ty {
        Type::Quantity => Some(QUANTITY_FORM.to_owned()),
        Type::SchemaOrBool => Some("boolean or JSON schema expected".to_owned()),
        _ => None,
    }
}

const QUANTITY_FORM: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// The scalar in the form in which its type is stored.
pub(super) fn convert(value: Value, ty: &Type) -> Result<Value, Error> {
    match (ty, &value) {
        (Type::String, Value::String(_)) | (Type::Bool, Value::Bool(_)) => Ok(value),
        (Type::Int32, Value::Number(number)) => integer(number, i32::MIN.into(), i32::MAX.into()),
        (Type::Int64, Value::Number(number)) => integer(number, i64::MIN, i64::MAX),
        (Type::Raw | Type::Json, _) | (Type::Double, Value::Number(_)) => Ok(whole(value)),
        (Type::SchemaOrBool, Value::Bool(_)) => Ok(value),
        (Type::SchemaOrBool, _) => Err(Error::Text("boolean or JSON schema expected".to_owned())),
        (Type::IntOrString, Value::String(_)) => Ok(value),
        (Type::IntOrString, Value::Number(number)) => {
            integer(number, i32::MIN.into(), i32::MAX.into())
        }
        (Type::Quantity, Value::String(text)) => quantity(text.trim()),
        (Type::Quantity, Value::Number(number)) => quantity(&number.to_string()),
        (Type::Quantity, _) => Err(Error::Text(QUANTITY_FORM.to_owned())),
        (Type::Bytes, Value::String(text)) => bytes(text).map(Value::String),
        (Type::Time, Value::String(text)) => time(text, false),
        (Type::MicroTime, Value::String(text)) => time(text, true),
        (Type::Duration, Value::String(_)) => Ok(value),
        _ => Err(Error::Mismatch(json_type(&value))),
    }
}

fn integer(number: &Number, min: i64, max: i64) -> Result<Value, Error> {
    match number.as_i64() {
        Some(value) if (min..=max).contains(&value) => Ok(Value::from(value)),
        _ => Err(Error::Number(number.clone())),
    }
}

fn quantity(text: &str) -> Result<Value, Error> {
    text.parse::<Quantity>()
        .map(|q| Value::String(q.to_string()))
        .map_err(|error| Error::Text(error.to_string()))
}

fn bytes(text: &str) -> Result<String, Error> {
    let clean: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    let engine = base64::engine::general_purpose::STANDARD;
    match engine.decode(&clean) {
        Ok(bytes) => Ok(engine.encode(bytes)),
        Err(_) => Err(Error::Text(format!(
            "illegal base64 data at input byte {}",
            corrupt_position(text.as_bytes())
        ))),
    }
}

/// Bytes as they are stored.
pub(super) fn base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// A byte in a list of them; null is zero.
///
/// # Errors
/// What it is instead.
pub(super) fn byte(value: &Value) -> Result<u8, Error> {
    match value {
        Value::Null => Ok(0),
        Value::Number(number) => {
            let byte = number.as_u64().and_then(|it| u8::try_from(it).ok());
            byte.ok_or_else(|| Error::Number(number.clone()))
        }
        other => Err(Error::Mismatch(json_type(other))),
    }
}

/// Where Go's decoder gives up, which passes over line breaks; at the end of the text it counts back only what it has of
/// the last four characters.
fn corrupt_position(text: &[u8]) -> usize {
    let kept: Vec<(usize, u8)> = text
        .iter()
        .copied()
        .enumerate()
        .filter(|(_, byte)| !matches!(byte, b'\r' | b'\n'))
        .collect();
    let alphabet = |b: u8| b.is_ascii_alphanumeric() || b == b'+' || b == b'/';
    // The place of a character in the text; past the end that of the end.
    let place = |index: usize| kept.get(index).map_or(text.len(), |(place, _)| *place);
    match kept.iter().position(|(_, b)| !alphabet(*b)) {
        None => text.len() - kept.len() % 4,
        Some(at) if kept[at].1 == b'=' => match at % 4 {
            0 | 1 => place(at),
            2 if kept.get(at + 1).map(|(_, b)| *b) != Some(b'=') => place(at + 1),
            2 => place(at + 2),
            _ => place(at + 1),
        },
        Some(at) => place(at),
    }
}

fn time(text: &str, micro: bool) -> Result<Value, Error> {
    super::time::convert(text, micro)
        .map(|time| time.map_or(Value::Null, Value::String))
        .map_err(|error| Error::Text(error.to_string()))
}

/// The number that an error is about, where it does not fit a float.
pub(super) fn number_out_of_range(text: &[u8], error: &serde_json::Error) -> Option<String> {
    if !error.to_string().starts_with("number out of range") {
        return None;
    }
    let at = position(text, error).min(text.len());
    let part = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
    let start = text[..at]
        .iter()
        .rposition(|byte| !part(byte))
        .map_or(0, |it| it + 1);
    let end = text[at..]
        .iter()
        .position(|byte| !part(byte))
        .map_or(text.len(), |it| at + it);
    Some(String::from_utf8_lossy(&text[start..end]).into_owned())
}

/// Where an error was met.
fn position(text: &[u8], error: &serde_json::Error) -> usize {
    text.split_inclusive(|b| *b == b'\n')
        .take(error.line().saturating_sub(1))
        .map(<[u8]>::len)
        .sum::<usize>()
        + error.column().saturating_sub(1)
}
