//! Conversions between types.

use std::sync::Arc;

use allot_apimachinery::strconv::parse_bool;

use super::{Args, Outcome};
use crate::{
    library::Function,
    types::Type,
    value::{Extension, Fault, Handle, Timestamp, Value},
};

pub(super) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "bool" => |args| match &args[0] {
            Value::Bool(value) => Ok(Value::Bool(*value)),
            Value::String(text) => match parse_bool(text) {
                Some(value) => Ok(Value::Bool(value)),
                None => Err(no_conversion("string", "bool")),
            },
            _ => Err(Fault::NoOverload),
        },
        "bytes" => |args| match &args[0] {
            Value::Bytes(_) => Ok(args[0].clone()),
            Value::String(text) => Ok(Value::Bytes(Handle::Shared(text.as_bytes().into()))),
            _ => Err(Fault::NoOverload),
        },
        "double" => |args| match &args[0] {
            Value::Double(value) => Ok(Value::Double(*value)),
            Value::Int(value) => Ok(Value::Double(*value as f64)),
            Value::Uint(value) => Ok(Value::Double(*value as f64)),
            Value::String(text) => parse_double(text)
                .map(Value::Double)
                .ok_or_else(|| no_conversion("string", "double")),
            _ => Err(Fault::NoOverload),
        },
        "int" => int,
        "uint" => uint,
        "string" => string,
        "duration" => |args| match &args[0] {
            Value::Duration(nanos) => Ok(Value::Duration(*nanos)),
            Value::Int(_) => Err(no_conversion("int", "google.protobuf.Duration")),
            Value::String(text) => crate::value::parse_duration(text)
                .map(Value::Duration)
                .ok_or_else(|| no_conversion("string", "google.protobuf.Duration")),
            _ => Err(Fault::NoOverload),
        },
        "timestamp" => |args| match &args[0] {
            Value::Timestamp(timestamp) => Ok(Value::Timestamp(*timestamp)),
            Value::Int(seconds) => Timestamp::from_seconds(*seconds)
                .map(Value::Timestamp)
                .ok_or_else(timestamp_overflow),
            Value::String(text) => match Timestamp::parse(text) {
                Some(timestamp) if timestamp.in_range() => Ok(Value::Timestamp(timestamp)),
                Some(_) => Err(timestamp_overflow()),
                None => Err(no_conversion("string", "google.protobuf.Timestamp")),
            },
            _ => Err(Fault::NoOverload),
        },
        "dyn" => |args| Ok(args[0].clone()),
        "type" => |args| Ok(Value::Type(Arc::new(args[0].type_of()))),
        _ => return None,
    })
}

fn timestamp_overflow() -> Fault {
    Fault::new("timestamp overflow")
}

fn no_conversion(from: &str, to: &str) -> Fault {
    Fault::new(format!("type conversion error from '{from}' to '{to}'"))
}

fn int<'a>(args: Args<'_, 'a>) -> Outcome<'a> {
    let overflow = || Fault::new("integer overflow");
    Ok(Value::Int(match &args[0] {
        Value::Int(value) => *value,
        Value::Uint(value) => i64::try_from(*value).map_err(|_| overflow())?,
        Value::Double(value) if *value > i64::MIN as f64 && *value < i64::MAX as f64 => {
            *value as i64
        }
        Value::Double(_) => return Err(overflow()),
        Value::Duration(nanos) => *nanos,
        Value::Timestamp(timestamp) => timestamp.seconds,
        Value::String(text) => parse_int(text).ok_or_else(|| no_conversion("string", "int"))?,
        _ => return Err(Fault::NoOverload),
    }))
}

fn uint<'a>(args: Args<'_, 'a>) -> Outcome<'a> {
    let overflow = || Fault::new("unsigned integer overflow");
    Ok(Value::Uint(match &args[0] {
        Value::Uint(value) => *value,
        Value::Int(value) => u64::try_from(*value).map_err(|_| overflow())?,
        Value::Double(value) if *value >= 0.0 && *value < u64::MAX as f64 => *value as u64,
        Value::Double(_) => return Err(overflow()),
        Value::String(text) if text.bytes().all(|b| b.is_ascii_digit()) => {
            text.parse().map_err(|_| no_conversion("string", "uint"))?
        }
        Value::String(_) => return Err(no_conversion("string", "uint")),
        _ => return Err(Fault::NoOverload),
    }))
}

fn parse_int(text: &str) -> Option<i64> {
    // Rust and Go agree on signs and digits.
    text.parse().ok()
}

/// Go also accepts hexadecimal and underscored numbers; neither is used, and both are rejected.
fn parse_double(text: &str) -> Option<f64> {
    let lower = text.to_ascii_lowercase();
    let unsigned = lower.trim_start_matches(['+', '-']);
    let number: f64 = match unsigned {
        "inf" | "infinity" | "nan" => unsigned.parse().ok()?,
        _ => {
            let number: f64 = unsigned.parse().ok()?;
            if number.is_infinite() {
                return None;
            }
            number
        }
    };
    (lower.len() - unsigned.len() <= 1).then_some(if lower.starts_with('-') {
        -number
    } else {
        number
    })
}

fn string<'a>(args: Args<'_, 'a>) -> Outcome<'a> {
    Ok(match &args[0] {
        value @ Value::String(_) => value.clone(),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Value::string(text),
            Err(_) => {
                return Err(Fault::new(
                    "invalid UTF-8 in bytes, cannot convert to string",
                ));
            }
        },
        value @ (Value::Bool(_)
        | Value::Int(_)
        | Value::Uint(_)
        | Value::Timestamp(_)
        | Value::Duration(_)
        | Value::Double(_)) => Value::string(value.to_string()),
        Value::Extension(extension)
            if matches!(**extension, Extension::Ip(_) | Extension::Cidr(..)) =>
        {
            Value::string(args[0].to_string())
        }
        _ => return Err(Fault::NoOverload),
    })
}

/// The text form of a value of a built-in type.
pub(super) fn to_text(value: &Value<'_>) -> Result<String, Fault> {
    match value {
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(Fault::new(
                "invalid UTF-8 in bytes, cannot convert to string",
            )),
        },
        Value::Type(ty) => Ok(match &**ty {
            Type::List(_) => "list".to_owned(),
            Type::Map(..) => "map".to_owned(),
            other => other.runtime_name(),
        }),
        other => Ok(other.to_string()),
    }
}
