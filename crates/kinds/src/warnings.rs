//! What an accepted write is warned about: texts of upstream, in its order.

use std::collections::{BTreeSet, HashSet};

use allot_apimachinery::names;
use allot_apimachinery::quote::quote;
use serde_json::Value;

use crate::object::{meta, metadata_mut};
use crate::registry::Resource;
use crate::request::{DeleteOptions, Part};

pub(crate) mod addresses;
pub(crate) mod pod;
#[cfg(test)]
mod tests;

/// Replaces old annotations of a new object by fields; returns the warnings about them.
pub fn replace_annotations(resource: &Resource, object: &mut Value) -> Vec<String> {
    match resource.rules.replace_annotations {
        Some(replace) => replace(object),
        None => Vec::new(),
    }
}

/// The warning about a delete.
pub fn on_delete(resource: &Resource, options: &DeleteOptions) -> Option<&'static str> {
    resource.rules.warning_delete?(options)
}

/// Warnings about a new object.
pub fn on_create(resource: &Resource, object: &Value) -> Vec<String> {
    if resource.custom.is_some() {
        return finalizers(object, &Value::Null);
    }
    let rules = resource.rules;
    rules.warnings_create.unwrap_or(rules.warnings)(object)
}

/// Warnings about a changed object.
pub fn on_update(resource: &Resource, object: &Value, old: &Value, part: Part) -> Vec<String> {
    match part {
        // What a handler has changed, as the scale, is written like the object itself.
        Part::Main | Part::Sub => {}
        Part::Status => {
            let warnings = resource.rules.warnings_status;
            return warnings.map_or_else(Vec::new, |warnings| warnings(object));
        }
        _ => return Vec::new(),
    }
    if resource.custom.is_some() {
        return finalizers(object, old);
    }
    match resource.rules.warnings_update {
        Some(warnings) => warnings(object, old),
        None => (resource.rules.warnings)(object),
    }
}

/// Warnings about a changed object of a kind that is warned about only if its spec changed.
pub(crate) fn after_change(
    object: &Value,
    old: &Value,
    warnings: fn(&Value) -> Vec<String>,
) -> Vec<String> {
    match object["metadata"]["generation"] == old["metadata"]["generation"] {
        true => Vec::new(),
        false => warnings(object),
    }
}

/// Warnings about the pod template in the spec of a workload.
pub(crate) fn template(object: &Value) -> Vec<String> {
    pod::warnings(&object["spec"]["template"], "spec.template.")
}

/// The warnings about a new workload: its name first, since its pods are named after it.
pub(crate) fn with_host_name(object: &Value, mut found: Vec<String>) -> Vec<String> {
    found.splice(0..0, host_name(object, "Pod names and hostnames"));
    found
}

/// Warnings about a new workload with a pod template in its spec.
pub(crate) fn new_template(object: &Value) -> Vec<String> {
    with_host_name(object, template(object))
}

/// A name of more than one label is an unusual host name.
pub(crate) fn host_name(object: &Value, of: &str) -> Option<String> {
    let texts = names::dns1123_label(meta(object, "name"));
    (!texts.is_empty()).then(|| {
        format!(
            "metadata.name: this is used in {of}, which can result in surprising behavior; a DNS label is recommended: [{}]",
            texts.join(" ")
        )
    })
}

/// New finalizers of custom resources should have a domain.
fn finalizers(object: &Value, old: &Value) -> Vec<String> {
    const STANDARD: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];
    let names_of = |object: &Value| -> BTreeSet<String> {
        let list = object["metadata"]["finalizers"].as_array();
        let names = list.into_iter().flatten().filter_map(Value::as_str);
        names.map(str::to_owned).collect()
    };
    let mut found = Vec::new();
    for name in names_of(object).difference(&names_of(old)) {
        let at = format!("metadata.finalizers: {}", quote(name));
        let texts = names::qualified_name(name);
        found.extend(texts.into_iter().map(|text| format!("{at}: {text}")));
        if name.contains('/') || STANDARD.contains(&name.as_str()) {
            continue;
        }
        let path = if name.contains('.') {
            " including a path (/)"
        } else {
            ""
        };
        found.push(format!(
            "{at}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers"
        ));
    }
    found
}

/// Removes duplicate owner references; returns the warning about them, which says whether mutating admission is over.
pub fn repeated_owners(object: &mut Value, admitted: bool) -> Option<String> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let mut kept: Vec<Value> = Vec::new();
    let mut repeated: Vec<&str> = Vec::new();
    let mut seen = HashSet::new();
    for owner in owners {
        if seen.insert(owner.to_string()) {
            kept.push(owner.clone());
            continue;
        }
        repeated.push(owner["uid"].as_str().unwrap_or_default());
    }
    if repeated.is_empty() {
        return None;
    }
    let repeated = repeated.join(", ");
    metadata_mut(object).insert("ownerReferences".to_owned(), kept.into());
    let admitted = if admitted {
        " after mutating admission happens"
    } else {
        ""
    };
    Some(format!(
        ".metadata.ownerReferences contains duplicate entries{admitted}; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {repeated}"
    ))
}
