//! Applies the result of a mutating policy to the object.

use allot_schema::apply::Versions;
use allot_schema::{Node, json_patch, merge};
use serde_json::Value;

use super::super::ObjectForm;
use super::request::{Request, Target};
use crate::managed::ResourceVersions;

/// The object after the operations of a JSON patch; unchanged if a test operation fails.
pub(super) fn patched(object: &Value, operations: &Value) -> Result<Value, String> {
    let failed = |why: &dyn std::fmt::Display| format!("JSON Patch: {why}");
    let patch = json_patch::Patch::from_json(operations).map_err(|error| failed(&error))?;
    let mut after = object.clone();
    match patch.apply(&mut after) {
        Ok(()) => Ok(after),
        Err(json_patch::Error::Test(_)) => Ok(object.clone()),
        Err(error) => Err(failed(&error)),
    }
}

/// The object with the apply configuration merged into it.
pub(super) fn applied(
    request: &Request<'_>,
    target: &Target,
    object: &Value,
    mut config: Value,
) -> Result<Value, String> {
    for key in ["apiVersion", "kind"] {
        config[key] = object[key].clone();
    }
    let versions = ResourceVersions {
        resource: &target.resource,
        subresource: request.attributes.subresource,
        conversions: request.asked.conversions,
    };
    let node = match request.asked.shown {
        ObjectForm::Object => versions.node(&target.resource.api_version(&target.version)),
        _ => allot_schema::types::lookup(&target.kind_group, &target.kind_version, &target.kind)
            .map(Node::Struct),
    };
    let node = node.ok_or_else(|| format!("Resource kind {} not found.", target.kind))?;
    let failed = |why: String| format!("error applying patch: {why}");
    let errors = merge::validate(&config, node, false);
    if !errors.is_empty() {
        let errors = merge::describe(&errors);
        let why = format!("failed to convert patch object to typed object: {errors}");
        return Err(failed(why));
    }
    let atomics = merge::atomics(&config, node);
    if !atomics.is_empty() {
        let why = format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {}",
            atomics.join(", ")
        );
        return Err(failed(why));
    }
    Ok(merge::merge(object, &config, node))
}
