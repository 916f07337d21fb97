//! Custom resources: what a CustomResourceDefinition adds to the registry.

use serde_json::Value;

/// The definition behind a custom resource.
#[derive(Debug, Clone, PartialEq)]
pub struct CustomResource {
    /// The CustomResourceDefinition object.
    pub definition: Value,
}

impl CustomResource {
    /// Fields that selectors may use, as in `spec.color`.
    pub fn selectable_fields(&self) -> Vec<String> {
        Vec::new()
    }
}

impl CustomResource {
    /// The schema of a version, for merging.
    pub fn node(&self, _version: &str) -> Option<allot_schema::Node<'_>> {
        Some(allot_schema::Node::Deduced)
    }
}
