//! Strategic merge patch: a merge patch with list merge strategies.
//!
//! Directives: `$patch` (`replace`, `delete`), `$retainKeys`, `$setElementOrder/<list>` and `$deleteFromPrimitiveList/<list>`.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::merge::{go_type, go_value};
use crate::types::{Patch, Struct, Type};

mod order;
mod shown;

pub use shown::shown;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder/";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

/// Why a patch cannot be applied. The texts are upstream's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A directive is malformed; the API answers 400.
    #[error("{0}")]
    Format(&'static str),
    /// The patch cannot be applied; the API answers 422.
    #[error("{0}")]
    Content(&'static str),
    /// The patch does not fit the object; the API answers 500.
    #[error("{0}")]
    Mismatch(String),
}

const BAD_RETAIN_KEYS: Error = Error::Format("invalid patch format of retainKeys");
const BAD_SET_ORDER: Error = Error::Format("invalid patch format of setElementOrder list");
const LIST_OF_LISTS: Error = Error::Content("lists of lists are not supported");

/// The original with the patch applied. The result still has to be [decoded](crate::decode::decode_value).
pub fn patch(original: &Value, patch: &Value, schema: &'static Struct) -> Result<Value, Error> {
    let (Value::Object(original), Value::Object(patch)) = (original, patch) else {
        return Err(Error::Format("invalid JSON document"));
    };
    merge_map(original.clone(), patch.clone(), Meta::Struct(schema)).map(Value::Object)
}

/// What is known about the fields of a map.
#[derive(Clone, Copy)]
enum Meta {
    Struct(&'static Struct),
    Map(&'static Type),
    Unknown,
}

static PLAIN: Patch = Patch {
    merge: false,
    replace: false,
    retain_keys: false,
    merge_key: None,
};

impl Meta {
    fn of(ty: &'static Type) -> Self {
        match ty {
            Type::Struct(id) => Meta::Struct(id.get()),
            Type::Map(element) => Meta::Map(element),
            _ => Meta::Unknown,
        }
    }

    /// What is known below a field, with its patch strategy. For lists it is what is known of the elements.
    fn field(self, name: &str) -> Result<(Meta, &'static Patch), Error> {
        match self {
            Meta::Struct(structure) => {
                let field = structure.field(name).ok_or_else(|| {
                    Error::Mismatch(format!(
                        "unable to find api field in struct {} for the json field {name:?}",
                        structure.simple_name()
                    ))
                })?;
                let ty = match &field.ty {
                    Type::List(element) => element,
                    ty => ty,
                };
                Ok((Meta::of(ty), &field.patch))
            }
            Meta::Map(element) => Ok((Meta::of(element), &PLAIN)),
            Meta::Unknown => Ok((Meta::Unknown, &PLAIN)),
        }
    }
}

fn merge_map(
    mut original: Map<String, Value>,
    mut patch: Map<String, Value>,
    meta: Meta,
) -> Result<Map<String, Value>, Error> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Map::new()),
            _ => Err(bad_patch_type(directive, &patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    set_order(&mut original, &mut patch, meta)?;
    for (key, mut value) in patch {
        if let Some(list) = key.strip_prefix(DELETE_FROM) {
            if let (Some(Value::Array(items)), Value::Array(gone)) =
                (original.get_mut(list), &value)
            {
                let gone: HashSet<String> = gone.iter().map(Value::to_string).collect();
                items.retain(|item| !gone.contains(&item.to_string()));
            }
            continue;
        }
        if value.is_null() {
            original.remove(&key);
            continue;
        }
        let merged = match (original.remove(&key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                let (below, strategy) = meta.field(&key)?;
                Some(Value::Object(match strategy.replace {
                    true => new,
                    false => merge_map(old, new, below)?,
                }))
            }
            (Some(Value::Array(old)), Value::Array(new)) => {
                let (element, strategy) = meta.field(&key)?;
                Some(Value::Array(if strategy.merge {
                    merge_list(old, new, element, strategy)?
                } else {
                    new
                }))
            }
            (_, other) => {
                value = other;
                discard_nulls(&mut value);
                without_directives(value)
            }
        };
        if let Some(merged) = merged {
            original.insert(key, merged);
        }
    }
    Ok(original)
}

/// `$retainKeys` drops every key of the original that it does not name; the patch may hold no other key.
fn retain_keys(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
) -> Result<(), Error> {
    let Some(list) = patch.remove(RETAIN_KEYS) else {
        return Ok(());
    };
    let Value::Array(list) = list else {
        return Err(BAD_RETAIN_KEYS);
    };
    let list: HashSet<&str> = list.iter().filter_map(Value::as_str).collect();
    let named = |key: &String| list.contains(key.as_str());
    for (key, value) in patch.iter() {
        if !value.is_null()
            && !key.starts_with(DELETE_FROM)
            && !key.starts_with(SET_ORDER)
            && !named(key)
        {
            return Err(BAD_RETAIN_KEYS);
        }
    }
    original.retain(|key, _| named(key));
    Ok(())
}

/// `$setElementOrder/list` merges the list right away and orders the result: by the directive, and what only the original has between.
fn set_order(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    meta: Meta,
) -> Result<(), Error> {
    let directives: Vec<String> = patch
        .keys()
        .filter(|key| key.starts_with(SET_ORDER))
        .cloned()
        .collect();
    for directive in directives {
        let wanted = match patch.remove(&directive) {
            Some(Value::Array(wanted)) => wanted,
            other => return Err(no_list(&other.unwrap_or_default())),
        };
        let key = &directive[SET_ORDER.len()..];
        let list = |value: Option<Value>| match value {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(other) => Err(no_list(&other)),
        };
        let old = list(original.get(key).cloned())?;
        let new = list(patch.get(key).cloned())?;
        let (element, strategy) = meta.field(key)?;
        order::check(
            new.as_deref().unwrap_or_default(),
            &wanted,
            strategy.merge_key,
        )?;
        let merged = match (&old, &new) {
            (None, None) => continue,
            (Some(old), None) => old.clone(),
            (None, Some(new)) => new.iter().cloned().filter_map(without_directives).collect(),
            (Some(old), Some(new)) if strategy.merge => {
                merge_list(old.clone(), new.clone(), element, strategy)?
            }
            (Some(_), Some(new)) => new.clone(),
        };
        let by = order::By(strategy.merge_key);
        let ordered = by.arrange(merged, &wanted, old.as_deref().unwrap_or_default())?;
        original.insert(key.to_owned(), Value::Array(ordered));
        patch.remove(key);
    }
    Ok(())
}

fn merge_list(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    element: Meta,
    strategy: &'static Patch,
) -> Result<Vec<Value>, Error> {
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    let objects = kind_of_elements(&original, &patch)?;
    let live = original.clone();
    if !objects {
        let mut merged: Vec<Value> = Vec::new();
        let mut seen = HashSet::new();
        for item in original.into_iter().chain(patch.iter().cloned()) {
            if seen.insert(item.to_string()) {
                merged.push(item);
            }
        }
        return order::By(None).arrange(merged, &patch, &live);
    }
    let Some(merge_key) = strategy.merge_key else {
        return Err(Error::Mismatch(
            "cannot merge lists without merge key for struct".to_owned(),
        ));
    };
    let mut plain = Vec::new();
    let mut deleted = HashSet::new();
    let mut replace = false;
    for item in patch {
        let Value::Object(map) = item else { continue };
        match map.get(DIRECTIVE) {
            None => plain.push(map),
            Some(directive) => match directive.as_str() {
                Some("delete") => {
                    let value = map
                        .get(merge_key)
                        .ok_or_else(|| no_merge_key(&map, merge_key))?;
                    deleted.insert(value.to_string());
                }
                Some("replace") => replace = true,
                Some("merge") => {
                    return Err(Error::Mismatch(
                        "merging lists cannot yet be specified in the patch".to_owned(),
                    ));
                }
                _ => return Err(bad_patch_type(directive, &map)),
            },
        }
    }
    if replace {
        return Ok(plain.into_iter().map(Value::Object).collect());
    }
    let by = order::By(Some(merge_key));
    let stays = |item: &Value| by.identity(item).is_none_or(|it| !deleted.contains(&it));
    original.retain(stays);
    let wanted: Vec<Value> = plain.iter().cloned().map(Value::Object).collect();
    let live: Vec<Value> = live.into_iter().filter(stays).collect();
    let mut places = by.places(&original);
    for map in plain {
        let value = map
            .get(merge_key)
            .ok_or_else(|| no_merge_key(&map, merge_key))?
            .clone();
        let place = places.entry(value.to_string()).or_insert(original.len());
        match original.get_mut(*place) {
            Some(Value::Object(found)) => {
                *found = merge_map(std::mem::take(found), map, element)?;
            }
            _ => original.push(Value::Object(map)),
        }
    }
    by.arrange(original, &wanted, &live)
}

/// True for lists of objects. All elements have to be of one kind, and not lists.
fn kind_of_elements(original: &[Value], patch: &[Value]) -> Result<bool, Error> {
    let mut kind: Option<&'static str> = None;
    for item in original.iter().chain(patch) {
        if item.is_array() {
            return Err(LIST_OF_LISTS);
        }
        let this = go_type(item);
        if kind.is_some_and(|kind| kind != this) {
            let shown = [original, patch].map(|items| go_value(&Value::Array(items.to_vec())));
            return Err(Error::Mismatch(format!(
                "list element types are not identical: [{}]",
                shown.join(" ")
            )));
        }
        kind = Some(this);
    }
    Ok(kind == Some("map[string]interface {}"))
}

fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

/// A value that is new to the original, without directives; none where it is nothing but one.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) => {
            if map.contains_key(DIRECTIVE) {
                return None;
            }
            let map = map
                .into_iter()
                .filter_map(|(key, value)| Some((key, without_directives(value)?)))
                .collect();
            Some(Value::Object(map))
        }
        Value::Array(items) => Some(Value::Array(
            items.into_iter().filter_map(without_directives).collect(),
        )),
        scalar => Some(scalar),
    }
}

/// Where a list was expected. Go has no type to print for null.
fn no_list(found: &Value) -> Error {
    let found = match found {
        Value::Null => "%!s(<nil>)",
        other => go_type(other),
    };
    Error::Mismatch(format!(
        "expected a []interface {{}}, but received a {found}"
    ))
}

fn go_map(map: &Map<String, Value>) -> String {
    go_value(&Value::Object(map.clone()))
}

fn bad_patch_type(directive: &Value, map: &Map<String, Value>) -> Error {
    Error::Mismatch(format!(
        "unknown patch type: {} in map: {}",
        go_text(directive),
        go_map(map)
    ))
}

/// A value as Go's `%s` prints it: values other than strings are printed with their type.
fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "%!s(<nil>)".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_text).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(map) => {
            let members = map.iter();
            let members = members.map(|(key, value)| format!("{key}:{}", go_text(value)));
            format!("map[{}]", members.collect::<Vec<_>>().join(" "))
        }
        other => format!("%!s({}={other})", go_type(other)),
    }
}

fn no_merge_key(map: &Map<String, Value>, key: &str) -> Error {
    Error::Mismatch(format!(
        "map: {} does not contain declared merge key: {key}",
        go_map(map)
    ))
}

#[cfg(test)]
mod tests;
