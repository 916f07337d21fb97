//! Values as messages of field errors show them.

use std::fmt;

use serde_json::Value;

use crate::quote::{go_json, quote};
use crate::strconv::format_float;

/// The offending value as a message shows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum BadValue {
    /// Not shown.
    #[default]
    Omitted,
    /// A string, quoted as in Go.
    Text(String),
    /// Shown as it is: a number, a bool, or JSON in the field order that upstream's struct has.
    Raw(String),
}

impl BadValue {
    /// Shown as it is.
    pub fn raw(text: impl Into<String>) -> Self {
        Self::Raw(text.into())
    }
}

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Omitted => Ok(()),
            Self::Text(text) => f.write_str(&quote(text)),
            Self::Raw(text) => f.write_str(text),
        }
    }
}

impl From<&str> for BadValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for BadValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&String> for BadValue {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl From<&Value> for BadValue {
    fn from(value: &Value) -> Self {
        match value {
            Value::String(text) => Self::Text(text.clone()),
            Value::Number(number) if number.is_f64() => {
                Self::Raw(format_float(number.as_f64().unwrap_or_default()))
            }
            other => Self::Raw(go_json(other)),
        }
    }
}

macro_rules! raw_from {
    ($($type:ty),*) => {$(
        impl From<$type> for BadValue {
            fn from(value: $type) -> Self {
                Self::Raw(value.to_string())
            }
        }
    )*};
}
raw_from!(i32, i64, u32, u64, usize, bool);
