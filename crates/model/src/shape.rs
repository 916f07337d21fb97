//! The structure of the kinds as data, and what is derived from it: the canonical form, equality and quoting.
//!
//! Upstream's behaviour on the wire follows from Go structs: members that are empty disappear, others are always
//! there, quantities and times come back in canonical form, and a value that is quoted whole in an error shows the
//! field names of the internal struct in the order of its declaration. [`tables`] holds those facts once; the
//! functions here apply them to JSON. Members that the tables do not know are never touched.

mod quoted;
pub(crate) mod tables;

use allot_apimachinery::quantity::Quantity;
use jiff::Timestamp;
use serde_json::Value;

pub use quoted::{RawTexts, showing_raw};
pub(crate) use quoted::{quote, raw_length};

/// A type as far as its JSON form matters.
#[derive(Clone, Copy)]
pub(crate) enum Ty {
    Text,
    Int,
    Bool,
    Quantity,
    /// RFC 3339 with seconds.
    Time,
    /// Arbitrary JSON that is kept as it is.
    Raw,
    /// `ObjectMeta`, which Go embeds.
    Meta,
    Struct(&'static Struct),
    List(&'static Ty),
    Map(&'static Ty),
}

pub(crate) struct Struct {
    pub(crate) fields: &'static [Field],
    /// Whether the Go type carries JSON tags even in its internal version.
    pub(crate) tagged: bool,
}

pub(crate) struct Field {
    pub(crate) json: &'static str,
    pub(crate) go: GoName,
    pub(crate) ty: Ty,
    pub(crate) presence: Presence,
}

/// The name of a field in upstream's internal struct.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum GoName {
    /// The JSON name, with a capital letter unless the struct is tagged.
    Derived,
    Given(&'static str),
    /// None: the struct is embedded.
    Embedded,
}

/// When a member appears in the canonical form.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// A value that disappears when it is zero.
    Omit,
    /// A value that is always there.
    Keep,
    /// A pointer: disappears when nil, a zero value stays.
    Pointer,
    /// A pointer that reads null when nil.
    KeepPointer,
}

/// Brings a value into the form in which upstream would encode it after decoding.
pub(crate) fn normalize(ty: Ty, value: &mut Value) {
    match ty {
        Ty::Text | Ty::Int | Ty::Bool | Ty::Raw => {}
        Ty::Quantity => {
            if let Some(quantity) = quantity(value) {
                *value = Value::String(quantity.to_string());
            }
        }
        Ty::Time => {
            if let Some(time) = value.as_str().and_then(time) {
                *value = Value::String(format_time(time));
            }
        }
        Ty::Meta => normalize_struct(&tables::OBJECT_META, value),
        Ty::Struct(shape) => normalize_struct(shape, value),
        Ty::List(item) => {
            for entry in value.as_array_mut().into_iter().flatten() {
                fill_null(*item, entry);
                normalize(*item, entry);
            }
        }
        Ty::Map(item) => {
            for (_, entry) in value.as_object_mut().into_iter().flatten() {
                fill_null(*item, entry);
                normalize(*item, entry);
            }
        }
    }
}

/// A null inside a list or map of values decodes to a zero value.
fn fill_null(ty: Ty, value: &mut Value) {
    if value.is_null() {
        *value = zero(ty);
    }
}

fn normalize_struct(shape: &Struct, value: &mut Value) {
    let Some(map) = value.as_object_mut() else {
        return;
    };
    for field in shape.fields {
        let present = map.get(field.json).is_some_and(|member| !member.is_null());
        if present {
            if let Some(member) = map.get_mut(field.json) {
                normalize(field.ty, member);
            }
            let empty = map
                .get(field.json)
                .is_some_and(|member| is_empty(field.ty, member));
            if empty && field.presence == Presence::Omit {
                map.remove(field.json);
            } else if empty
                && field.presence == Presence::Keep
                && matches!(field.ty, Ty::List(_) | Ty::Map(_))
            {
                // Upstream stores protobuf, which does not tell an empty list from none.
                map.insert(field.json.to_owned(), Value::Null);
            }
            continue;
        }
        match field.presence {
            Presence::Omit | Presence::Pointer => {
                map.remove(field.json);
            }
            Presence::KeepPointer => {
                map.insert(field.json.to_owned(), Value::Null);
            }
            Presence::Keep => {
                let mut member = zero(field.ty);
                normalize(field.ty, &mut member);
                map.insert(field.json.to_owned(), member);
            }
        }
    }
}

fn zero(ty: Ty) -> Value {
    match ty {
        Ty::Text => Value::String(String::new()),
        Ty::Int => Value::from(0),
        Ty::Bool => Value::Bool(false),
        Ty::Quantity => Value::String("0".to_owned()),
        Ty::Meta | Ty::Struct(_) => Value::Object(serde_json::Map::new()),
        Ty::Time | Ty::Raw | Ty::List(_) | Ty::Map(_) => Value::Null,
    }
}

/// Whether `omitempty` drops the value.
fn is_empty(ty: Ty, value: &Value) -> bool {
    match ty {
        Ty::Text => value.as_str() == Some(""),
        Ty::Int => value.as_i64() == Some(0),
        Ty::Bool => value.as_bool() == Some(false),
        Ty::List(_) => value.as_array().is_some_and(Vec::is_empty),
        Ty::Map(_) => value.as_object().is_some_and(serde_json::Map::is_empty),
        Ty::Quantity | Ty::Time | Ty::Raw | Ty::Meta | Ty::Struct(_) => false,
    }
}

/// Whether a member has the zero value of its Go field. A list or map that is set is not zero, even if it is empty.
pub(crate) fn is_zero(field: &Field, value: &Value) -> bool {
    let has_zero =
        field.presence != Presence::Pointer && !matches!(field.ty, Ty::List(_) | Ty::Map(_));
    value.is_null() || (has_zero && is_empty(field.ty, value))
}

/// Equality as upstream's semantic comparison sees it: nil equals empty for lists and maps, quantities compare by
/// value and times by instant, an unset pointer differs from a pointer to a zero value.
pub(crate) fn equal(ty: Ty, left: &Value, right: &Value) -> bool {
    match ty {
        Ty::Text | Ty::Bool | Ty::Int | Ty::Raw => left == right,
        Ty::Quantity => match (quantity(left), quantity(right)) {
            (Some(left), Some(right)) => left == right,
            _ => left == right,
        },
        Ty::Time => match (left.as_str().and_then(time), right.as_str().and_then(time)) {
            (Some(left), Some(right)) => left == right,
            _ => left == right,
        },
        Ty::Meta => equal_struct(&tables::OBJECT_META, left, right),
        Ty::Struct(shape) => equal_struct(shape, left, right),
        Ty::List(item) => {
            let (left, right) = (slice(left), slice(right));
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| equal(*item, left, right))
        }
        Ty::Map(item) => match (members(left), members(right)) {
            (None, None) => true,
            (Some(left), Some(right)) => {
                left.len() == right.len()
                    && left.iter().all(|(key, left)| {
                        right
                            .get(key)
                            .is_some_and(|right| equal(*item, left, right))
                    })
            }
            _ => false,
        },
    }
}

fn slice(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The members of a map that is neither nil nor empty.
fn members(value: &Value) -> Option<&serde_json::Map<String, Value>> {
    value.as_object().filter(|map| !map.is_empty())
}

fn equal_struct(shape: &Struct, left: &Value, right: &Value) -> bool {
    let member =
        |value: &Value, key: &str| value.get(key).filter(|member| !member.is_null()).cloned();
    let known = shape.fields.iter().all(|field| {
        let (left, right) = (member(left, field.json), member(right, field.json));
        let pointer = matches!(field.presence, Presence::Pointer | Presence::KeepPointer);
        match (left, right) {
            (None, None) => true,
            (Some(left), Some(right)) => equal(field.ty, &left, &right),
            _ if pointer => false,
            (left, right) => equal(
                field.ty,
                &left.unwrap_or_else(|| zero(field.ty)),
                &right.unwrap_or_else(|| zero(field.ty)),
            ),
        }
    });
    known && unknown_members(shape, left).eq(unknown_members(shape, right))
}

fn unknown_members<'a>(
    shape: &'a Struct,
    value: &'a Value,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, member)| {
            !member.is_null() && shape.fields.iter().all(|field| field.json != key.as_str())
        })
}

/// The paths of members that the structure does not have.
pub(crate) fn unknown_fields(ty: Ty, value: &Value) -> Vec<String> {
    let mut fields = Vec::new();
    collect_unknown(ty, value, "", &mut fields);
    fields
}

fn collect_unknown(ty: Ty, value: &Value, path: &str, fields: &mut Vec<String>) {
    match ty {
        Ty::Struct(shape) => {
            for (key, member) in value.as_object().into_iter().flatten() {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                match shape.fields.iter().find(|field| field.json == key.as_str()) {
                    Some(field) => collect_unknown(field.ty, member, &path, fields),
                    // Not part of the tables, since they are not separate fields in Go.
                    None if matches!(path.as_str(), "apiVersion" | "kind") => {}
                    None => fields.push(path),
                }
            }
        }
        Ty::List(item) => {
            for (index, entry) in slice(value).iter().enumerate() {
                collect_unknown(*item, entry, &format!("{path}[{index}]"), fields);
            }
        }
        Ty::Map(item) => {
            for (key, entry) in value.as_object().into_iter().flatten() {
                collect_unknown(*item, entry, &format!("{path}[{key}]"), fields);
            }
        }
        Ty::Meta => collect_unknown(Ty::Struct(&tables::OBJECT_META), value, path, fields),
        Ty::Text | Ty::Int | Ty::Bool | Ty::Quantity | Ty::Time | Ty::Raw => {}
    }
}

/// Reads a quantity; JSON numbers are accepted as upstream does.
pub(crate) fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

/// Reads an RFC 3339 time.
pub(crate) fn time(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// Writes a time as `metav1.Time` does: UTC, whole seconds.
pub(crate) fn format_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests;
