//! Ownership of fields (`metadata.managedFields`) for the resources of the registry.

use allot_apimachinery::Status;
use allot_apimachinery::status::Cause;
use allot_schema::Node;
use allot_schema::apply::{Error, FieldManager, Managed, VersionError, Versions, empty_object};
use allot_schema::fields::Set;
use serde_json::Value;

use crate::error::ApiError;
use crate::registry::Resource;
use crate::versions;

mod known;

pub use known::{Known, ROUNDS};

/// The versions of one resource, and through which subresource it is written.
pub struct ResourceVersions<'a> {
    /// The resource whose objects are converted.
    pub resource: &'a Resource,
    /// The subresource, or empty.
    pub subresource: &'a str,
    /// What a webhook has converted.
    pub conversions: &'a Known,
}

fn split(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

impl Versions for ResourceVersions<'_> {
    fn node(&self, api_version: &str) -> Option<Node<'_>> {
        let (group, version) = split(api_version);
        let known = self.resource.version(version)?;
        if group != self.resource.group {
            return None;
        }
        match &self.resource.custom {
            Some(custom) => custom.node(version),
            // Schemas are published for served versions only, but components also write through other versions.
            None if !known.open_to(true) => None,
            None => {
                allot_schema::types::lookup(group, version, &self.resource.kind).map(Node::Struct)
            }
        }
    }

    fn check(&self, api_version: &str) -> Result<(), VersionError> {
        if api_version.matches('/').count() > 1 {
            return Err(VersionError::Malformed(api_version.to_owned()));
        }
        let (group, version) = split(api_version);
        let known = group == self.resource.group && self.resource.version(version).is_some();
        if self.resource.custom.is_some() && !known {
            return Err(VersionError::Unknown(api_version.to_owned()));
        }
        Ok(())
    }

    fn convert(&self, object: &Value, api_version: &str) -> Option<Value> {
        let (_, version) = split(api_version);
        let (_, found) = split(object["apiVersion"].as_str().unwrap_or_default());
        if found != version && self.resource.is_converted_by_webhook() {
            return self.conversions.get(object, version);
        }
        let mut converted = versions::convert(self.resource, object.clone(), version).ok()?;
        // The way through upstream's structs loses what is empty.
        if found != version
            && let Some(schema) = self.resource.schema(version)
        {
            allot_schema::decode::normalize(&mut converted, schema);
        }
        Some(converted)
    }

    fn reset_fields(&self, _api_version: &str) -> Set {
        let rules = self.resource.rules;
        let mut own = rules.reset_fields.iter();
        if let Some((_, paths)) = own.find(|(name, _)| *name == self.subresource) {
            return Set::of_fields(paths.iter().copied());
        }
        let paths: &[&[&str]] = match self.subresource {
            "" if self.resource.subresource("status").is_some() => &[&["status"]],
            "status" if rules.status_keeps_metadata() => &[&["metadata"], &["spec"]],
            "status" => &[&["spec"]],
            _ => &[],
        };
        Set::of_fields(paths.iter().copied())
    }
}

/// Runs `work` with the field manager of a request. Missing `conversions` must be fetched, and the work repeated.
pub fn with_manager<T>(
    resource: &Resource,
    version: &str,
    subresource: &str,
    conversions: &Known,
    work: impl FnOnce(&FieldManager<'_>, &dyn Fn() -> Value) -> T,
) -> T {
    let versions = ResourceVersions {
        resource,
        subresource,
        conversions,
    };
    let api_version = resource.api_version(version);
    let now = crate::object::now();
    let manager = FieldManager {
        versions: &versions,
        api_version: &api_version,
        kind: &resource.kind,
        subresource,
        now: &now,
    };
    let empty = || match versions.node(&api_version) {
        Some(node) => empty_object(node, &api_version, &resource.kind),
        None => serde_json::json!({"apiVersion": api_version, "kind": resource.kind}),
    };
    work(&manager, &empty)
}

/// A kind with one version, whose objects are answered and not stored.
struct Answered<'a> {
    api_version: &'a str,
    schema: &'static allot_schema::types::Struct,
}

impl Versions for Answered<'_> {
    fn node(&self, api_version: &str) -> Option<Node<'_>> {
        (api_version == self.api_version).then_some(Node::Struct(self.schema))
    }

    fn convert(&self, object: &Value, _api_version: &str) -> Option<Value> {
        Some(object.clone())
    }

    fn reset_fields(&self, _api_version: &str) -> Set {
        Set::default()
    }
}

/// Writes the owner of the fields of a new object, which is answered and not stored, into it.
pub fn own_answered(
    api_version: &str,
    kind: &str,
    subresource: &str,
    manager: &str,
    object: &mut Value,
) {
    let (group, version) = split(api_version);
    let Some(schema) = allot_schema::types::lookup(group, version, kind) else {
        return;
    };
    let now = crate::object::now();
    let fields = FieldManager {
        versions: &Answered {
            api_version,
            schema,
        },
        api_version,
        kind,
        subresource,
        now: &now,
    };
    let empty = empty_object(Node::Struct(schema), api_version, kind);
    let owners = fields.update(&empty, &Managed::default(), object, manager);
    owners.write(object);
}

/// Puts managed fields with unusual manager names back into the object, where validation checks them.
pub fn show_unusual(owners: &Managed, object: &mut Value) {
    if owners.names_are_unusual() {
        owners.write(object);
    }
}

/// A refused apply as clients see it.
pub fn apply_error(error: Error) -> ApiError {
    match error {
        Error::Conflict(conflicts) => {
            let causes = conflicts
                .listed()
                .map(|(message, field)| Cause {
                    reason: "FieldManagerConflict".to_owned(),
                    message,
                    field,
                })
                .collect();
            Status::apply_conflict(causes, conflicts.to_string()).into()
        }
        Error::BadRequest(text) => ApiError::bad_request(text),
        Error::Typed(text) => ApiError::unknown(text),
    }
}
