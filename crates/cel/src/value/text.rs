//! Values as text, as upstream's error messages show them.

use std::fmt;

use allot_apimachinery::strconv::format_float;

use super::{Extension, Value};

pub(super) fn show(value: &Value<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match value {
        Value::Null => f.write_str("null"),
        Value::Bool(value) => write!(f, "{value}"),
        Value::Int(value) => write!(f, "{value}"),
        Value::Uint(value) => write!(f, "{value}"),
        Value::Double(value) => f.write_str(&format_float(*value)),
        Value::String(text) => f.write_str(text),
        Value::Bytes(bytes) => {
            // A slice of bytes is shown as numbers.
            let numbers: Vec<_> = bytes.iter().map(u8::to_string).collect();
            write!(f, "[{}]", numbers.join(" "))
        }
        Value::Duration(nanos) => f.write_str(&super::time::duration_text(*nanos)),
        Value::Timestamp(timestamp) => f.write_str(&timestamp.text()),
        Value::Type(ty) => f.write_str(&ty.runtime_name()),
        Value::List(list) => {
            f.write_str("[")?;
            for (i, element) in list.iter().enumerate() {
                write!(f, "{}{element}", if i > 0 { ", " } else { "" })?;
            }
            f.write_str("]")
        }
        Value::Map(map) => {
            f.write_str("{")?;
            for (i, key) in map.keys().into_iter().enumerate() {
                let value = map.find(&key).unwrap_or(Value::Null);
                write!(f, "{}{key}: {value}", if i > 0 { ", " } else { "" })?;
            }
            f.write_str("}")
        }
        Value::Optional(Some(inner)) => write!(f, "optional({inner})"),
        Value::Optional(None) => f.write_str("optional.none()"),
        Value::Quantity(quantity) => write!(f, "{}", &**quantity),
        Value::Version(version) => write!(f, "{}", &**version),
        Value::Extension(extension) => match &**extension {
            Extension::Url(url) => f.write_str(url.text()),
            Extension::Ip(address) => write!(f, "{address}"),
            Extension::Cidr(address, prefix) => write!(f, "{address}/{prefix}"),
            Extension::Format(format) => f.write_str(format.name),
            Extension::Access(access) => f.write_str(access.type_name()),
        },
    }
}
