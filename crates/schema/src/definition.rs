//! CustomResourceDefinitions themselves: defaults, validation, accepted names and conditions.

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::{Value, json};

use crate::structural::Structural;

mod approval;
mod conversion;
mod internal;
mod names;
mod names_accepted;
mod schema;
mod shown;
mod spec;
mod version;

pub use names_accepted::{accept_names, is_true, set_condition};
pub use schema::structural_errors;

/// The finalizer that keeps a CRD until its objects are deleted.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

/// The versions of a definition.
pub fn versions(definition: &Value) -> &[Value] {
    list(&definition["spec"], "versions")
}

/// The name of the version that objects are stored in.
pub fn storage_version(definition: &Value) -> &str {
    versions(definition)
        .iter()
        .find(|version| version["storage"] == true)
        .map_or("", |version| text(version, "name"))
}

/// Fills in what may be left open.
pub fn default(definition: &mut Value) {
    let kind = text(&definition["spec"]["names"], "kind").to_owned();
    if let Value::Object(spec) = &mut definition["spec"] {
        if spec.get("conversion").is_none_or(Value::is_null) {
            spec.insert("conversion".to_owned(), json!({"strategy":"None"}));
        }
        if let Some(service) = spec["conversion"].pointer_mut("/webhook/clientConfig/service")
            && let Value::Object(service) = service
        {
            let port = service.entry("port").or_insert(Value::Null);
            if port.is_null() {
                *port = 443.into();
            }
        }
        let names = spec.entry("names").or_insert_with(|| json!({}));
        if text(names, "singular").is_empty() && !kind.is_empty() {
            names["singular"] = kind.to_lowercase().into();
        }
        if text(names, "listKind").is_empty() && !kind.is_empty() {
            names["listKind"] = format!("{kind}List").into();
        }
    }
    // Only where nothing is said: a client may have migrated its objects.
    if list(&definition["status"], "storedVersions").is_empty() {
        note_storage_version(definition);
    }
}

/// The unsupported formats in the schemas of a CRD.
pub fn unknown_formats(definition: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for version in versions(definition) {
        let schema = Structural::from_json(&version["schema"]["openAPIV3Schema"]);
        schema.unknown_formats(&mut found);
    }
    found
}

/// Adds the storage version to `status.storedVersions` if it is missing.
pub fn note_storage_version(definition: &mut Value) {
    let mut all = versions(definition).iter();
    let Some(stored) = all.find(|version| version["storage"] == true) else {
        return;
    };
    // Also one without a name, which validation refuses.
    let stored = text(stored, "name").to_owned();
    let versions = &mut definition["status"]["storedVersions"];
    match versions {
        Value::Array(versions) => {
            if !versions.iter().any(|version| version == &stored) {
                versions.push(stored.into());
            }
        }
        other => *other = json!([stored]),
    }
}

/// The status that a new definition starts with.
pub fn initial_status(definition: &mut Value) {
    definition["status"] =
        json!({"conditions":null,"acceptedNames":{"plural":"","kind":""},"storedVersions":null});
    note_storage_version(definition);
}

/// The required `metadata.name`.
pub fn required_name(definition: &Value) -> String {
    format!(
        "{}.{}",
        text(&definition["spec"]["names"], "plural"),
        text(&definition["spec"], "group")
    )
}

/// Errors of a new CRD, apart from those of its metadata (the name rule is [`required_name`]).
pub fn validate(definition: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    spec::validate(
        &definition["spec"],
        conversion::Authority::Lenient,
        &mut errors,
    );
    finish(definition, None, errors)
}

/// Errors of a changed definition.
pub fn validate_update(definition: &Value, old: &Value) -> ErrorList {
    let path = Path::new("spec");
    let mut errors = ErrorList::new();
    let (spec, old_spec) = (&definition["spec"], &old["spec"]);
    spec::validate(spec, conversion::Authority::after(old), &mut errors);
    let mut immutable = |new: &Value, old: &Value, path: Path| {
        if new != old {
            errors.push(Error::invalid(&path, new, "field is immutable"));
        }
    };
    let (names, old_names) = (&spec["names"], &old_spec["names"]);
    let at_names = path.child("names");
    // What decides where objects are stored stays once there can be objects.
    if is_true(old, "Established") {
        immutable(&spec["scope"], &old_spec["scope"], path.child("scope"));
        immutable(&names["kind"], &old_names["kind"], at_names.child("kind"));
    }
    immutable(&spec["group"], &old_spec["group"], path.child("group"));
    let (plural, old_plural) = (&names["plural"], &old_names["plural"]);
    immutable(plural, old_plural, at_names.child("plural"));
    finish(definition, Some(old), errors)
}

/// The errors of a definition's status alone.
pub fn validate_status(definition: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    let path = Path::new("status").child("acceptedNames");
    names::validate(&definition["status"]["acceptedNames"], &path, &mut errors);
    errors
}

fn finish(definition: &Value, old: Option<&Value>, mut errors: ErrorList) -> ErrorList {
    errors.extend(validate_status(definition));
    stored_versions(definition, &mut errors);
    errors.extend(approval::error(definition, old));
    if definition["spec"]["preserveUnknownFields"] == true
        && old.is_none_or(|old| old["spec"]["preserveUnknownFields"] != true)
    {
        let path = Path::new("spec").child("preserveUnknownFields");
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(Error::invalid(&path, true, detail));
    }
    errors
}

fn stored_versions(definition: &Value, errors: &mut ErrorList) {
    let path = Path::new("status").child("storedVersions");
    let shown = &definition["status"]["storedVersions"];
    let stored = list(&definition["status"], "storedVersions");
    if stored.is_empty() {
        let detail = "must have at least one stored version";
        errors.push(Error::invalid(&path, shown, detail));
        return;
    }
    let versions = versions(definition);
    let listed: std::collections::HashSet<&Value> = stored.iter().collect();
    let mut seen = std::collections::HashSet::new();
    for version in versions {
        // Of versions with the same name, only the first is compared with the stored versions.
        let taken = !seen.insert(&version["name"]);
        if version["storage"] == true && (taken || !listed.contains(&version["name"])) {
            let name = text(version, "name");
            let detail = format!("must have the storage version {name}");
            errors.push(Error::invalid(&path, shown, detail));
            // Each error contains all stored versions.
            if errors.is_full() {
                return;
            }
        }
    }
    for (index, version) in stored.iter().enumerate() {
        if !seen.contains(version) {
            let name = version.as_str().unwrap_or_default();
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            errors.push(Error::invalid(&path.index(index), name, detail));
        }
    }
}

#[cfg(test)]
mod tests;
