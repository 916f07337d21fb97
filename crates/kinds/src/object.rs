//! Reading and changing API objects held as JSON.

use std::collections::BTreeMap;

use allot_apimachinery::conditions;
use allot_apimachinery::names::GENERATED_NAME_ALPHABET;
use serde_json::{Map, Value};

use crate::error::{ApiError, Result};

/// The object `metadata`, made if it is not there.
pub fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    child_mut(object, "metadata")
}

/// Sets a condition of the object's status; see [`conditions::set_condition`]. A list of another type stays as it is.
pub fn set_condition(object: &mut Value, condition: Value) -> bool {
    let conditions = child_mut(object, "status")
        .entry("conditions")
        .or_insert_with(|| Value::Array(Vec::new()));
    match conditions {
        Value::Array(list) => conditions::set_condition(list, condition),
        _ => false,
    }
}

/// The object under `key`, created if it does not exist or is not an object.
pub fn child_mut<'a>(object: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Value::Object(map) = object else {
        unreachable!("just made an object")
    };
    let child = map.entry(key).or_insert_with(|| Value::Object(Map::new()));
    if !child.is_object() {
        *child = Value::Object(Map::new());
    }
    match child {
        Value::Object(map) => map,
        _ => unreachable!("just made an object"),
    }
}

/// The value under `key`, null if it did not exist; a parent that is no object becomes one.
pub fn child_entry<'a>(object: &'a mut Value, key: &str) -> &'a mut Value {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Value::Object(map) = object else {
        unreachable!("just made an object")
    };
    map.entry(key).or_insert(Value::Null)
}

/// A string in `metadata`, empty if absent.
pub fn meta<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"][key].as_str().unwrap_or_default()
}

/// The value at a path, null if absent.
pub fn at<'a>(object: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(object, |value, key| &value[*key])
}

/// A string at a path, empty if absent.
pub fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    at(object, path).as_str().unwrap_or_default()
}

/// The elements of a list; empty for other values.
pub fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The elements of a list at a path, mutable; empty if there is no list. Unlike an index, which inserts a null for a
/// missing value, it changes nothing: policies and webhooks see the actual object.
pub fn items_mut<'a>(value: &'a mut Value, path: &[&str]) -> &'a mut [Value] {
    let mut place = Some(value);
    for key in path {
        place = place.and_then(|value| value.get_mut(*key));
    }
    place
        .and_then(Value::as_array_mut)
        .map_or(&mut [], Vec::as_mut_slice)
}

/// Maximum nesting of an object. JSON parsers here and in clients stop at 128 levels, of which lists and watch events
/// use some: one deeper object would keep a client from reading any.
const MAX_LEVELS: usize = 100;

/// Checks how deep an object is nested.
///
/// # Errors
/// 400.
pub fn check_depth(object: &Value) -> Result<()> {
    match nests_within(object, MAX_LEVELS) {
        true => Ok(()),
        false => {
            let why = format!("the object is nested more than {MAX_LEVELS} levels deep");
            Err(ApiError::bad_request(why))
        }
    }
}

/// A value is nested at most so deep.
fn nests_within(value: &Value, levels: usize) -> bool {
    let Some(below) = levels.checked_sub(1) else {
        return !value.is_array() && !value.is_object();
    };
    match value {
        Value::Array(items) => items.iter().all(|value| nests_within(value, below)),
        Value::Object(members) => members.values().all(|value| nests_within(value, below)),
        _ => true,
    }
}

/// Removes an empty map or list, or null, under a key of `metadata`.
pub fn drop_empty(map: &mut Map<String, Value>, key: &str) {
    let empty = match map.get(key) {
        Some(Value::Object(inner)) => inner.is_empty(),
        Some(Value::Array(inner)) => inner.is_empty(),
        Some(Value::String(inner)) => inner.is_empty(),
        Some(Value::Null) => true,
        _ => false,
    };
    if empty {
        map.remove(key);
    }
}

/// The strings of a list, other values left out.
pub fn strings(value: &Value) -> Vec<String> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

/// A string map, other values left out.
pub fn string_map(value: &Value) -> BTreeMap<String, String> {
    value
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

/// Group and version of an `apiVersion`.
pub fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// A stored object with its kind and version in front.
pub fn with_kind(stored: &[u8], api_version: &str, kind: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(stored.len() + api_version.len() + kind.len() + 32);
    write_with_kind(&mut out, stored, api_version, kind);
    out
}

/// [`with_kind`] into a buffer.
pub fn write_with_kind(out: &mut Vec<u8>, stored: &[u8], api_version: &str, kind: &str) {
    // Kinds and versions are plain names: no escaping is needed.
    out.extend_from_slice(b"{\"kind\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",\"apiVersion\":\"");
    out.extend_from_slice(api_version.as_bytes());
    out.extend_from_slice(b"\",");
    out.extend_from_slice(stored.get(1..).unwrap_or(b"}"));
}

/// A stored custom object with its kind, as [`crate::ordered::object`] writes it; `None` for one from before stored
/// objects began with their version.
pub fn write_custom(out: &mut Vec<u8>, stored: &[u8], api_version: &str, kind: &str) -> Option<()> {
    let rest = stored.strip_prefix(b"{\"apiVersion\":\"")?;
    let rest = rest.strip_prefix(api_version.as_bytes())?;
    let rest = rest.strip_prefix(b"\",")?;
    out.extend_from_slice(b"{\"apiVersion\":\"");
    out.extend_from_slice(api_version.as_bytes());
    out.extend_from_slice(b"\",\"kind\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(b"\",");
    out.extend_from_slice(rest);
    Some(())
}

/// Now, as API objects write it: whole seconds, UTC.
pub fn now() -> String {
    timestamp(jiff::Timestamp::now())
}

/// A time as API objects write it.
pub fn timestamp(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A time with microseconds, as Leases and audit events write it.
pub fn micro_timestamp(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// The part of an object's metadata that its Scale has.
pub fn scale_metadata(object: &Value) -> Value {
    let keys = [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ];
    let present = keys.into_iter().filter_map(|key| {
        let value = object["metadata"].get(key)?;
        Some((key.to_owned(), value.clone()))
    });
    Value::Object(present.collect())
}

/// Longest base that a random end is added to.
const MAX_GENERATED_BASE: usize = 58;

/// A name from `generateName`: the base, cut if needed, and five random characters.
pub fn generate_name(base: &str) -> String {
    let mut name = base[..base.floor_char_boundary(MAX_GENERATED_BASE)].to_owned();
    for _ in 0..5 {
        let index = rand::random_range(0..GENERATED_NAME_ALPHABET.len());
        name.push(char::from(GENERATED_NAME_ALPHABET[index]));
    }
    name
}
