//! Fields that field selectors can name.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::kind::Kind;
use crate::view::View;

/// The field that the watch cache indexes: slices of one node.
pub const SLICE_NODE_NAME: &str = "spec.nodeName";
/// The field by which drivers watch their own slices.
pub const SLICE_DRIVER: &str = "spec.driver";
/// Slices of one pool, since 1.37.
pub const SLICE_POOL_NAME: &str = "spec.pool.name";

/// The names of the fields that a selector may use for objects of `kind`.
pub fn selectable_fields(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::ResourceSlice => &["metadata.name", SLICE_NODE_NAME, SLICE_DRIVER],
        _ if kind.namespaced() => &["metadata.name", "metadata.namespace"],
        _ => &["metadata.name"],
    }
}

/// The values of those fields for an object in hub form.
pub fn field_values(kind: Kind, value: &Value) -> BTreeMap<String, String> {
    let metadata = value.at("metadata");
    let spec = value.at("spec");
    selectable_fields(kind)
        .iter()
        .map(|field| {
            let text = match *field {
                "metadata.name" => metadata.text("name"),
                "metadata.namespace" => metadata.text("namespace"),
                SLICE_NODE_NAME => spec.text("nodeName"),
                _ => spec.text("driver"),
            };
            ((*field).to_owned(), text.to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests;
