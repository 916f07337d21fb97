//! The rules of a kind for an object as a whole.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use allot_model::Kind;
use allot_model::features::Features;
use allot_model::validate::meta as meta_rules;
use serde_json::Value;

use super::is_definition;
use crate::classic;
use crate::jobs;
use crate::registry::Resource;
use crate::request::Part;
use crate::validate;
use crate::versions::{self, dra_kind};

/// Errors of a new object.
pub fn validate_create(features: &Features, resource: &Resource, object: &Value) -> ErrorList {
    if let Some(kind) = classic::kind_of(resource, object) {
        return allot_model::classic::create(kind, object);
    }
    if let Some(kind) = dra_kind(resource) {
        return allot_model::validate::create(kind, object, features);
    }
    if let Some(custom) = &resource.custom {
        return custom.validate(version_of(object), object, None, Part::Main);
    }
    let path = Path::new("metadata");
    if resource.is("", "events") || resource.is("policy", "poddisruptionbudgets") {
        // For these upstream validates the metadata last, and only with the general rules.
        let errors = validate::create(&resource.group, &resource.plural, object);
        return match errors.is_empty() {
            true => meta_rules::any_object_meta(
                &object["metadata"],
                resource.namespaced,
                names::path_segment_name,
                &path,
            ),
            false => errors,
        };
    }
    let mut errors = validate_meta(resource, object, &path);
    if is_definition(resource) {
        let name = crate::object::meta(object, "name");
        if !name.is_empty() && name != allot_schema::definition::required_name(object) {
            let detail = "must be spec.names.plural+\".\"+spec.group";
            add_name_error(
                &mut errors,
                Error::invalid(&path.child("name"), name, detail),
            );
        }
        errors.extend(allot_schema::definition::validate(object));
    }
    if resource.group == versions::EVENTS {
        let mut event = object.clone();
        versions::events::from_core(&mut event);
        let mut found = validate::create(&resource.group, &resource.plural, &event);
        // The rules for legacy events are checked first.
        let old_rules = found
            .iter()
            .take_while(|error| error.field.starts_with("involvedObject"))
            .count();
        found.splice(old_rules..old_rules, errors);
        return found;
    }
    if resource.group == "apiregistration.k8s.io" {
        for error in validate::create(&resource.group, &resource.plural, object) {
            match error.field.as_str() {
                "metadata.name" => add_name_error(&mut errors, error),
                _ => errors.push(error),
            }
        }
        return errors;
    }
    if resource.is("batch", "jobs") {
        jobs::validate_selector(object, &mut errors);
    }
    errors.extend(validate::create(&resource.group, &resource.plural, object));
    errors
}

/// Adds an error about the name in upstream's order: after other errors about it, before those about the rest of the
/// metadata.
fn add_name_error(errors: &mut ErrorList, error: Error) {
    let about_name = |known: &Error| known.field == error.field;
    let at = errors.iter().rposition(about_name).map_or(0, |at| at + 1);
    errors.insert(at, error);
}

/// Errors of the metadata of an object as that of a new one.
fn validate_meta(resource: &Resource, object: &Value, path: &Path) -> ErrorList {
    let rules = if has_own_finalizers(resource) {
        meta_rules::any_object_meta
    } else {
        meta_rules::object_meta
    };
    let metadata = &object["metadata"];
    rules(metadata, resource.namespaced, name_rule(resource), path)
}

/// Finalizers of these kinds need no domain: upstream validates them like those of custom resources.
fn has_own_finalizers(resource: &Resource) -> bool {
    const GROUPS: [&str; 4] = [
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "coordination.k8s.io",
    ];
    GROUPS.contains(&resource.group.as_str())
}

/// The `apiVersion` of an object.
fn version_of(object: &Value) -> &str {
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    api_version.rsplit('/').next().unwrap_or_default()
}

/// Errors of a changed object.
pub fn validate_update(
    features: &Features,
    resource: &Resource,
    object: &Value,
    old: &Value,
    part: Part,
) -> ErrorList {
    // Upstream checks the metadata once for all kinds and again for each: mistakes count twice.
    let path = Path::new("metadata");
    let path_name = names::path_segment_name;
    let mut generic =
        meta_rules::any_object_meta(&object["metadata"], resource.namespaced, path_name, &path);
    generic.extend(meta_rules::any_object_meta_update(
        &object["metadata"],
        &old["metadata"],
        &path,
    ));
    generic.extend(validate_kind_update(features, resource, object, old, part));
    generic
}

/// Errors of a changed object as its kind sees them.
fn validate_kind_update(
    features: &Features,
    resource: &Resource,
    object: &Value,
    old: &Value,
    part: Part,
) -> ErrorList {
    if let Some(kind) = classic::kind_of(resource, object) {
        return classic::validate_update(kind, object, old, part);
    }
    if let Some(kind) = dra_kind(resource) {
        return match part {
            Part::Status => allot_model::validate::status_update(kind, object, old),
            // As upstream's strategy, which alone of these does so.
            _ if kind == Kind::ResourceClaimTemplate => {
                let mut errors = allot_model::validate::create(kind, object, features);
                errors.extend(allot_model::validate::update(kind, object, old, features));
                errors
            }
            _ => allot_model::validate::update(kind, object, old, features),
        };
    }
    if let Some(custom) = &resource.custom {
        return custom.validate(version_of(object), object, Some(old), part);
    }
    let path = Path::new("metadata");
    let checked = if has_own_finalizers(resource) {
        meta_rules::any_object_meta_update
    } else {
        meta_rules::object_meta_update
    };
    let mut errors = ErrorList::new();
    if part != Part::Main || checks_meta_change(resource, object) {
        errors = checked(&object["metadata"], &old["metadata"], &path);
    }
    if is_definition(resource) {
        errors.extend(match part {
            Part::Status => allot_schema::definition::validate_status(object),
            _ => allot_schema::definition::validate_update(object, old),
        });
    }
    if part == Part::Main && checks_meta_again(resource) {
        errors.extend(validate_meta(resource, object, &path));
    }
    if part == Part::Main && resource.is("batch", "jobs") {
        jobs::validate_selector(object, &mut errors);
    }
    errors.extend(validate::update(
        &resource.group,
        &resource.plural,
        object,
        old,
        part,
    ));
    errors
}

/// Whether the update rules of a kind check changes of the metadata.
fn checks_meta_change(resource: &Resource, event: &Value) -> bool {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "events") => false,
        // Events without `eventTime`, which predate that field.
        ("events.k8s.io", _) => !event["eventTime"].is_null(),
        ("", "limitranges" | "persistentvolumes")
        | ("storage.k8s.io", "csinodes" | "volumeattachments")
        | ("policy", "poddisruptionbudgets")
        | ("flowcontrol.apiserver.k8s.io" | "admissionregistration.k8s.io", _)
        | ("discovery.k8s.io", "endpointslices") => false,
        _ => true,
    }
}

/// Whether the update rules of a kind also validate the metadata of the new object as a whole.
fn checks_meta_again(resource: &Resource) -> bool {
    !matches!(
        (resource.group.as_str(), resource.plural.as_str()),
        (
            "",
            "events" | "podtemplates" | "replicationcontrollers" | "resourcequotas" | "services"
        ) | (
            "apps",
            "daemonsets" | "deployments" | "replicasets" | "statefulsets"
        ) | ("autoscaling" | "coordination.k8s.io" | "events.k8s.io", _)
            | ("batch", "cronjobs")
            | ("policy", "poddisruptionbudgets")
            | (
                "networking.k8s.io",
                "ipaddresses" | "networkpolicies" | "servicecidrs"
            )
            | ("scheduling.k8s.io", _)
            | ("storage.k8s.io", "csidrivers")
    )
}

/// The name rule of a kind.
fn name_rule(resource: &Resource) -> fn(&str) -> Vec<String> {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "namespaces") => names::dns1123_label,
        ("", "services") => names::dns1123_label,
        ("apps", "statefulsets") => names::dns1123_label,
        ("rbac.authorization.k8s.io", _)
        | ("policy", "poddisruptionbudgets")
        | ("certificates.k8s.io", "certificatesigningrequests")
        | ("apiregistration.k8s.io", _) => names::path_segment_name,
        ("networking.k8s.io", "ipaddresses") => validate::ip_name,
        _ => names::dns1123_subdomain,
    }
}
