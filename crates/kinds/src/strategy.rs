//! What differs from kind to kind when an object is written.
//!
//! The generic write path calls these in upstream's order: default, admit, prepare, validate. Behind them are
//! `allot_model` (resource.k8s.io), `allot_schema` (the other built-in kinds) and definitions (custom kinds).

use serde_json::Value;

use crate::classic;
use crate::registry::Resource;
use crate::versions::dra_kind;

mod certificates;
mod delete;
mod fields;
mod groups;
mod kinds;
mod prepare;
mod services;
mod validate;

pub use delete::{is_finished, prepare_for_delete, refuses_delete, returns_deleted_object};
pub use kinds::{
    allocates_addresses, allows_create_on_update, defaults_status_from_spec, names_by_uuid,
    storage_prefix,
};
pub use prepare::{
    prepare_for_create, prepare_for_update, set_generated_name, status_keeps_metadata,
};
pub use validate::{validate_create, validate_update};

/// Fills in defaults for an object in the version of the request.
pub fn default(resource: &Resource, version: &str, object: &mut Value) {
    if let Some(kind) = classic::kind_in(resource, version) {
        return allot_model::classic::default(kind, object);
    }
    if let (Some(kind), Ok(version)) = (dra_kind(resource), version.parse()) {
        allot_model::defaults::default(kind, version, object, jiff::Timestamp::now());
        return;
    }
    match &resource.custom {
        Some(custom) => custom.default(version, object),
        None if is_definition(resource) => allot_schema::definition::default(object),
        None => {
            allot_schema::defaults::apply(&resource.group, version, &resource.kind, object);
            if resource.is("apps", "daemonsets") {
                prepare::default_template_generation(object);
            }
        }
    }
}

/// The resource defines other resources.
fn is_definition(resource: &Resource) -> bool {
    resource.is("apiextensions.k8s.io", "customresourcedefinitions")
}

/// Brings an admitted and validated object into the form in which it is stored.
pub fn finish(resource: &Resource, object: &mut Value) {
    if let Some(kind) = classic::kind_of(resource, object) {
        return allot_model::classic::normalize(kind, object);
    }
    if let Some(kind) = dra_kind(resource) {
        allot_model::convert::normalize(kind, object);
    } else if resource.group == "events.k8s.io" {
        // Stored in the core group's form, which its conversion has normalised.
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
