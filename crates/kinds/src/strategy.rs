//! What differs from kind to kind when an object is written.
//!
//! The generic write path calls these in upstream's order: default, admit, prepare, validate. Behind them are the rules of
//! a built-in kind ([`Rules`](crate::registry::Rules)) and definitions (custom kinds).

use serde_json::Value;

use crate::registry::Resource;

mod delete;
mod prepare;
mod validate;

pub use delete::{is_finished, prepare_for_delete, refuses_delete};
pub(crate) use prepare::{adopt, keep, keep_but};
pub use prepare::{prepare_for_create, prepare_for_update, set_generated_name};
pub use validate::{validate_create, validate_update};

/// Upstream's storage prefix of a resource, which its messages about conflicts contain.
pub fn storage_prefix(resource: &Resource) -> String {
    match resource.rules.storage_prefix {
        _ if resource.custom.is_some() => format!("{}/{}", resource.group, resource.plural),
        "" => resource.plural.clone(),
        prefix => prefix.to_owned(),
    }
}

/// Fills in defaults for an object in the version of the request.
pub fn default(resource: &Resource, version: &str, object: &mut Value) {
    match (&resource.custom, resource.rules.defaults) {
        (Some(custom), _) => custom.default(version, object),
        (None, Some(default)) => default(resource, version, object),
        (None, None) => {
            allot_schema::defaults::apply(&resource.group, version, &resource.kind, object);
        }
    }
}

/// As [`default`] for the result of an apply.
pub fn default_applied(resource: &Resource, version: &str, object: &mut Value) {
    match &resource.custom {
        Some(custom) => custom.default_applied(version, object),
        None => default(resource, version, object),
    }
}

/// Brings an admitted and validated object into the form in which it is stored.
pub fn finish(resource: &Resource, object: &mut Value) {
    if let Some(normalize) = resource.rules.normalize {
        normalize(resource, object);
    } else if let Some(schema) = resource.schema(&resource.storage_version) {
        allot_schema::decode::normalize(object, schema);
        null_empty_lists(object, schema);
    }
}

/// An empty list that upstream's encoder does not omit is null after a round trip through its storage.
fn null_empty_lists(value: &mut Value, schema: &'static allot_schema::types::Struct) {
    use allot_schema::types::Type;
    fn inside(value: &mut Value, ty: &Type) {
        match (value, ty) {
            (value, Type::Struct(id)) => null_empty_lists(value, id.get()),
            (Value::Array(items), Type::List(element)) => {
                items.iter_mut().for_each(|item| inside(item, element))
            }
            (Value::Object(map), Type::Map(element)) => {
                map.values_mut().for_each(|item| inside(item, element))
            }
            _ => {}
        }
    }
    let Value::Object(map) = value else { return };
    for (name, value) in map.iter_mut() {
        let Some(field) = schema.field(name) else {
            continue;
        };
        if value.as_array().is_some_and(Vec::is_empty) && !field.omit_empty {
            *value = Value::Null;
        } else {
            inside(value, &field.ty);
        }
    }
}
