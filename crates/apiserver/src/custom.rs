//! Custom resources: what a CustomResourceDefinition adds to the registry.
//!
//! A CRD is compiled once per change into a [`CustomResource`]; the [`lifecycle`] task watches CRDs and keeps the
//! registry up to date.

use std::sync::atomic::{AtomicU64, Ordering};

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_model::validate::meta as meta_rules;
use allot_schema::{Node, definition, rules::Rules, structural, structural::Structural};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::registry::{Resource, Subresource, Version, collection_name};
use crate::strategy::Part;

mod column;
pub mod conversion;
pub mod json_path;
pub mod lifecycle;
mod scale;

pub use scale::Scale;

/// The next mark; an entry without one has 0.
static MARKS: AtomicU64 = AtomicU64::new(1);

/// The definition behind a custom resource, compiled.
#[derive(Debug)]
pub struct CustomResource {
    group: String,
    kind: String,
    namespaced: bool,
    versions: Vec<CustomVersion>,
    converter: Option<conversion::Converter>,
    terminating: bool,
    /// See [`CustomResource::ended`].
    ended: CancellationToken,
}

/// One version of a custom resource.
#[derive(Debug)]
struct CustomVersion {
    name: String,
    /// See [`CustomResource::mark`].
    mark: u64,
    schema: Structural,
    rules: Option<Rules>,
    status: bool,
    scale: Option<Scale>,
    /// The schema as written, for documents.
    source: Value,
    columns: Vec<column::CustomColumn>,
    selectable: Vec<String>,
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn strings(value: &Value) -> Vec<String> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

impl CustomResource {
    /// Compiles a definition.
    pub fn new(object: &Value) -> Self {
        let spec = &object["spec"];
        let versions = definition::versions(object)
            .iter()
            .map(|version| {
                let schema = Structural::from_json(&version["schema"]["openAPIV3Schema"]);
                CustomVersion {
                    mark: MARKS.fetch_add(1, Ordering::Relaxed),
                    rules: Rules::compile(&schema),
                    name: text(version, "name").to_owned(),
                    schema,
                    status: version["subresources"]["status"].is_object(),
                    scale: Scale::of(&version["subresources"]["scale"]),
                    source: version["schema"]["openAPIV3Schema"].clone(),
                    columns: column::columns(&version["additionalPrinterColumns"]),
                    selectable: version["selectableFields"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .map(|field| text(field, "jsonPath").trim_start_matches('.').to_owned())
                        .collect(),
                }
            })
            .collect();
        Self {
            group: text(spec, "group").to_owned(),
            kind: text(&spec["names"], "kind").to_owned(),
            namespaced: text(spec, "scope") == "Namespaced",
            versions,
            converter: conversion::Converter::of(object),
            terminating: definition::is_true(object, "Terminating"),
            ended: CancellationToken::new(),
        }
    }

    /// Ends watches when the CRD has changed, or was deleted.
    pub fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    /// Watches that began with an earlier state of the CRD continue: it serves the same.
    fn follows(&mut self, earlier: &Self) {
        self.ended = earlier.ended.clone();
    }

    /// The definition is being deleted: there will be no more objects.
    pub fn is_terminating(&self) -> bool {
        self.terminating
    }

    /// The mark of stored objects that this state of a CRD serves as they are stored: pruning and defaults change
    /// nothing. No other CRD and no other state of this one has the same.
    pub fn mark(&self, version: &str) -> Option<u64> {
        self.version(version).map(|version| version.mark)
    }

    fn version(&self, name: &str) -> Option<&CustomVersion> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// Fields that selectors may use, such as `spec.color`; those of any version, as one watch may see several.
    pub fn selectable_fields(&self) -> Vec<String> {
        let mut fields: Vec<String> = self
            .versions
            .iter()
            .flat_map(|version| version.selectable.clone())
            .collect();
        fields.sort_unstable();
        fields.dedup();
        fields
    }

    /// The schema of a version, for merging.
    pub fn node(&self, version: &str) -> Option<Node<'_>> {
        self.version(version)
            .map(|version| Node::Custom(&version.schema))
    }

    /// The schema of a version as the definition has it.
    pub fn schema(&self, version: &str) -> &Value {
        self.version(version)
            .map_or(&Value::Null, |version| &version.source)
    }

    /// The columns of a table in a version.
    pub fn columns(&self, version: &str) -> Vec<crate::table::Column> {
        self.version(version)
            .map(|version| column::headers(&version.columns))
            .unwrap_or_default()
    }

    /// The cells of a row.
    pub fn row(&self, version: &str, object: &Value) -> Vec<Value> {
        self.version(version)
            .map(|version| column::cells(&version.columns, object))
            .unwrap_or_default()
    }

    /// What the scale subresource of a version reads and writes.
    pub fn scale(&self, version: &str) -> Option<&Scale> {
        self.version(version)?.scale.as_ref()
    }

    /// Prunes fields that the version does not have; returns them, as strict decoding does. A version that does not
    /// exist has no fields.
    pub fn prune(&self, version: &str, object: &mut Value) -> Vec<String> {
        let unknown = match self.version(version) {
            Some(version) => structural::prune(object, &version.schema),
            None => structural::prune(object, &Structural::default()),
        };
        unknown
            .into_iter()
            .map(|field| format!("unknown field {field:?}"))
            .collect()
    }

    /// Reads an object that was sent, as the version that it names: metadata by its type, without fields outside of the
    /// schema. Returns the pruned fields, as strict decoding does. An object of another kind keeps everything but its
    /// metadata: validation rejects it.
    ///
    /// # Errors
    /// The decoder's text for metadata of a wrong type.
    pub fn read(&self, object: &mut Value) -> Result<Vec<String>, String> {
        let mut unknown = structural::coerce_metadata(object)?;
        let (group, version) = crate::object::split_api_version(text(object, "apiVersion"));
        if group == self.group && text(object, "kind") == self.kind {
            let nothing = Structural::default();
            let schema = self
                .version(version)
                .map_or(&nothing, |version| &version.schema);
            unknown.extend(structural::prune(object, schema));
            let embedded = structural::coerce_embedded(object, schema);
            unknown.extend(embedded.map_err(|error| error.to_string())?);
        }
        let named = |field: String| format!("unknown field {field:?}");
        Ok(unknown.into_iter().map(named).collect())
    }

    /// Sets defaults; removes nulls where they are not allowed.
    pub fn default(&self, version: &str, object: &mut Value) {
        if let Some(version) = self.version(version) {
            structural::prune_nulls(object, &version.schema);
            structural::default(object, &version.schema);
        }
    }

    /// Errors of a new object (no `old`) or of a change through an endpoint.
    pub fn validate(
        &self,
        version: &str,
        object: &Value,
        old: Option<&Value>,
        part: Part,
    ) -> ErrorList {
        let type_errors = self.validate_type(version, object);
        let Some(version) = self.version(version).filter(|_| type_errors.is_empty()) else {
            return type_errors;
        };
        let path = Path::new("metadata");
        let (schema, root) = (&version.schema, Path::root());
        let mut errors = match old {
            None => {
                let name_rule = allot_apimachinery::names::dns1123_subdomain;
                meta_rules::any_object_meta(&object["metadata"], self.namespaced, name_rule, &path)
            }
            Some(old) => {
                meta_rules::any_object_meta_update(&object["metadata"], &old["metadata"], &path)
            }
        };
        match (part, old) {
            (Part::Status, Some(old)) => {
                if let (Some(status), Some(schema)) =
                    (object.get("status"), schema.properties.get("status"))
                {
                    errors.extend(structural::validate_update(
                        status,
                        &old["status"],
                        schema,
                        &Path::new("status"),
                    ));
                }
            }
            (_, Some(old)) => {
                errors.extend(structural::validate_update(object, old, schema, &root))
            }
            (_, None) => errors.extend(structural::validate(object, schema, &root)),
        }
        if let Some(scale) = &version.scale {
            errors.extend(scale.validate(object, part));
        }
        errors.extend(structural::validate_embedded(
            object,
            schema,
            &root,
            embedded_meta,
        ));
        let lists = |object: &Value| structural::validate_lists(object, schema, &root);
        if old.is_none_or(|old| lists(old).is_empty()) {
            errors.extend(lists(object));
        }
        if let Some(rules) = &version.rules {
            if errors.iter().any(blocks_rules) {
                let detail = "some validation rules were not checked because the object was invalid; \
                              correct the existing errors to complete validation";
                errors.push(Error::invalid(&Path::new("<nil>"), &Value::Null, detail));
            } else {
                errors.extend(rules.validate(object, old, &root));
            }
        }
        errors
    }

    fn validate_type(&self, version: &str, object: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        let kind = text(object, "kind");
        if kind != self.kind {
            errors.push(Error::invalid(
                &Path::new("kind"),
                kind,
                format!("must be {}", self.kind),
            ));
        }
        let wanted = format!("{}/{version}", self.group);
        let found = text(object, "apiVersion");
        if found != wanted {
            errors.push(Error::invalid(
                &Path::new("apiVersion"),
                found,
                format!("must be {wanted}"),
            ));
        }
        errors
    }

    /// The status endpoint of a version exists.
    pub fn has_status(&self, version: &str) -> bool {
        self.version(version).is_some_and(|version| version.status)
    }
}

/// Errors of the metadata of an object inside of another, which may have no name.
fn embedded_meta(metadata: &Value, path: &Path) -> ErrorList {
    let mut metadata = metadata.clone();
    if text(&metadata, "name").is_empty() {
        metadata["name"] = "fakename".into();
    }
    let namespaced = !text(&metadata, "namespace").is_empty();
    meta_rules::any_object_meta(
        &metadata,
        namespaced,
        allot_apimachinery::names::path_segment_name,
        path,
    )
}

/// Rules are not run on an object that has such an error: they could meet what their types exclude.
fn blocks_rules(error: &Error) -> bool {
    use allot_apimachinery::field::ErrorType;
    matches!(
        error.kind,
        ErrorType::NotSupported
            | ErrorType::Required
            | ErrorType::TooLong
            | ErrorType::TooMany
            | ErrorType::TypeInvalid
    )
}

/// The registry row of a CRD.
pub fn resource(object: &Value) -> Resource {
    let spec = &object["spec"];
    let names = &object["status"]["acceptedNames"];
    let group = text(spec, "group").to_owned();
    let plural = text(names, "plural").to_owned();
    let kind = text(names, "kind").to_owned();
    let mut versions: Vec<&Value> = definition::versions(object).iter().collect();
    versions.sort_by_key(|version| std::cmp::Reverse(priority(text(version, "name"))));
    let words = |list: &[&str]| {
        list.iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    let sub = |name: &str, group: &str, version: &str, kind: &str| Subresource {
        name: name.to_owned(),
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        verbs: words(&["get", "patch", "update"]),
    };
    let custom = CustomResource::new(object);
    let mut subresources = Vec::new();
    if custom.versions.iter().any(|version| version.status) {
        subresources.push(sub("status", "", "", &kind));
    }
    if custom
        .versions
        .iter()
        .any(|version| version.scale.is_some())
    {
        subresources.push(sub("scale", "autoscaling", "v1", "Scale"));
    }
    let verbs = match custom.terminating {
        true => &["delete", "deletecollection", "get", "list", "watch"][..],
        false => &[
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "create",
            "update",
            "watch",
        ],
    };
    Resource {
        collection: collection_name(&group, &plural),
        storage_version: definition::storage_version(object).to_owned(),
        versions: versions
            .iter()
            .map(|version| Version {
                name: text(version, "name").to_owned(),
                served: version["served"] == true,
                internal: false,
                deprecation: deprecation(&group, &kind, version, &versions),
            })
            .collect(),
        list_kind: text(names, "listKind").to_owned(),
        singular: text(names, "singular").to_owned(),
        short_names: strings(&names["shortNames"]),
        categories: strings(&names["categories"]),
        namespaced: text(spec, "scope") == "Namespaced",
        verbs: words(verbs),
        subresources,
        custom: Some(std::sync::Arc::new(custom)),
        group,
        kind,
        plural,
    }
}

/// The warning that requests through a version get.
fn deprecation(group: &str, kind: &str, version: &Value, all: &[&Value]) -> String {
    if version["deprecated"] != true {
        return String::new();
    }
    if let Some(warning) = version["deprecationWarning"].as_str() {
        return warning.to_owned();
    }
    let name = text(version, "name");
    let better = all.iter().find(|other| {
        other["served"] == true
            && other["deprecated"] != true
            && priority(text(other, "name")) > priority(name)
    });
    let advice = better
        .map(|better| format!("; use {group}/{} {kind}", text(better, "name")))
        .unwrap_or_default();
    format!("{group}/{name} {kind} is deprecated{advice}")
}

/// The order of versions: stable before beta before alpha, then by number; other names come last, in reverse
/// alphabetical order.
fn priority(name: &str) -> (u8, u64, u64, std::cmp::Reverse<String>) {
    let parsed = name.strip_prefix('v').and_then(|rest| {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let major: u64 = rest[..digits].parse().ok()?;
        let (stage, minor) = match &rest[digits..] {
            "" => (3, 0),
            rest => match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
                (Some(minor), _) => (2, minor.parse().ok()?),
                (_, Some(minor)) => (1, minor.parse().ok()?),
                _ => return None,
            },
        };
        Some((stage, major, minor))
    });
    match parsed {
        Some((stage, major, minor)) => (stage, major, minor, std::cmp::Reverse(String::new())),
        None => (0, 0, 0, std::cmp::Reverse(name.to_owned())),
    }
}

#[cfg(test)]
mod tests;
