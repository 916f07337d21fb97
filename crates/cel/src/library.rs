//! The functions of expressions, in modules by topic. The environment declares the overloads; a function checks the
//! kinds of its arguments and returns [`Fault::NoOverload`] if they do not match.

use crate::value::{Fault, Value};

mod authorization;
mod convert;
mod format;
mod lists;
mod named_format;
mod net;
mod operators;
mod optional;
mod patches;
pub(crate) mod regex;
mod strings;
mod time;
mod units;
mod url;

pub(crate) use format::{ArgumentError, Clause, Formatter, format_with};
pub(crate) use optional::insert;
pub(crate) use regex::{PatternError, Regex};

/// Longest list that `includes` searches.
pub(crate) const INCLUDES_MAX: usize = 48;

/// Implementation of a function.
pub(crate) type Function = for<'a> fn(&[Value<'a>]) -> Result<Value<'a>, Fault>;

type Args<'v, 'a> = &'v [Value<'a>];
type Outcome<'a> = Result<Value<'a>, Fault>;

/// The implementation of a function; the receiver is its first argument.
pub(crate) fn function(name: &str) -> Option<Function> {
    operators::function(name)
        .or_else(|| convert::function(name))
        .or_else(|| strings::function(name))
        .or_else(|| lists::function(name))
        .or_else(|| units::function(name))
        .or_else(|| optional::function(name))
        .or_else(|| regex::function(name))
        .or_else(|| net::function(name))
        .or_else(|| url::function(name))
        .or_else(|| named_format::function(name))
        .or_else(|| time::function(name))
        .or_else(|| authorization::function(name))
        .or_else(|| patches::function(name))
}

/// Functions with one implementation for all overloads, chosen by a trait of the first argument.
pub(crate) fn is_singleton(name: &str) -> bool {
    matches!(
        name,
        "_+_"
            | "_-_"
            | "_*_"
            | "_/_"
            | "_%_"
            | "-_"
            | "!_"
            | "_<_"
            | "_<=_"
            | "_>_"
            | "_>=_"
            | "@in"
            | "size"
            | "matches"
            | "sort"
            | "@sortByAssociatedKeys"
    )
}

/// Whether a value has the trait that the implementation of such a function needs.
pub(crate) fn has_trait(name: &str, value: &Value<'_>) -> bool {
    match name {
        "_+_" => matches!(
            value,
            Value::Int(_)
                | Value::Uint(_)
                | Value::Double(_)
                | Value::String(_)
                | Value::Bytes(_)
                | Value::Duration(_)
                | Value::Timestamp(_)
                | Value::List(_)
        ),
        "_-_" => matches!(
            value,
            Value::Int(_)
                | Value::Uint(_)
                | Value::Double(_)
                | Value::Duration(_)
                | Value::Timestamp(_)
        ),
        "_*_" | "_/_" => matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_)),
        "_%_" => matches!(value, Value::Int(_) | Value::Uint(_)),
        "-_" => matches!(
            value,
            Value::Int(_) | Value::Double(_) | Value::Bool(_) | Value::Duration(_)
        ),
        "_<_" | "_<=_" | "_>_" | "_>=_" => value.is_comparable(),
        "size" => matches!(
            value,
            Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_)
        ),
        "matches" => matches!(value, Value::String(_)),
        "sort" | "@sortByAssociatedKeys" => matches!(value, Value::List(_)),
        _ => true,
    }
}

fn text<'v>(value: &'v Value<'_>) -> Result<&'v str, Fault> {
    value.as_str().ok_or(Fault::NoOverload)
}

fn int(value: &Value<'_>) -> Result<i64, Fault> {
    match value {
        Value::Int(value) => Ok(*value),
        _ => Err(Fault::NoOverload),
    }
}

/// A list of strings.
fn strings<'a>(texts: impl IntoIterator<Item = impl Into<String>>) -> Value<'a> {
    Value::list(
        texts
            .into_iter()
            .map(|text| Value::string(text.into()))
            .collect(),
    )
}
