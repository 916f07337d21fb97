//! What differs from kind to kind when an object is written.
//!
//! The generic write path calls these in upstream's order: default, admit, prepare, validate. Behind them are
//! `allot_model` (resource.k8s.io), `allot_schema` (the other built-in kinds) and definitions (custom kinds).

use serde_json::Value;

use crate::classic;
use crate::registry::Resource;
use crate::versions::dra_kind;

mod certificates;
mod groups;
mod prepare;
mod services;
mod validate;

pub use prepare::{
    prepare_for_create, prepare_for_update, set_generated_name, status_keeps_metadata,
};
pub use validate::{validate_create, validate_update};

/// Which part of an object an update may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Everything but the status.
    Main,
    /// Only the status.
    Status,
    /// Another subresource that has made the change itself.
    Sub,
    /// Namespace finalizers.
    Finalize,
    /// The ephemeral containers of a pod.
    EphemeralContainers,
    /// The resources of a pod's containers.
    Resize,
    /// The approval of a certificate request.
    Approval,
}

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

/// An empty list that upstream's encoder does not leave out comes back from its storage as null.
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
