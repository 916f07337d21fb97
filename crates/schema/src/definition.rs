//! CustomResourceDefinitions themselves: defaults, validation, accepted names and conditions.

use std::collections::BTreeSet;

use allot_apimachinery::{
    field::{Error, ErrorList, Path},
    names,
};
use serde_json::{Value, json};

mod approval;
mod names_accepted;
mod schema;

pub use names_accepted::{accept_names, is_true, set_condition};
pub use schema::structural_errors;

/// The finalizer that holds a definition until its objects are gone.
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
        let names = spec.entry("names").or_insert_with(|| json!({}));
        if text(names, "singular").is_empty() && !kind.is_empty() {
            names["singular"] = kind.to_lowercase().into();
        }
        if text(names, "listKind").is_empty() && !kind.is_empty() {
            names["listKind"] = format!("{kind}List").into();
        }
    }
    note_storage_version(definition);
}

/// Adds the storage version to `status.storedVersions` if it is not there.
pub fn note_storage_version(definition: &mut Value) {
    let stored = storage_version(definition).to_owned();
    if stored.is_empty() {
        return;
    }
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

/// What `metadata.name` has to be.
pub fn required_name(definition: &Value) -> String {
    format!(
        "{}.{}",
        text(&definition["spec"]["names"], "plural"),
        text(&definition["spec"], "group")
    )
}

/// Errors of a new definition, apart from those of its metadata (the name rule is [`required_name`]).
pub fn validate(definition: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    validate_spec(&definition["spec"], &Path::new("spec"), &mut errors);
    errors.extend(approval::error(definition, None));
    errors
}

/// Errors of a changed definition.
pub fn validate_update(definition: &Value, old: &Value) -> ErrorList {
    let path = Path::new("spec");
    let mut errors = ErrorList::new();
    let (spec, old_spec) = (&definition["spec"], &old["spec"]);
    if is_true(old, "Established") {
        let mut immutable = |new: &Value, old: &Value, path: Path| {
            if new != old {
                errors.push(Error::invalid(&path, new, "field is immutable"));
            }
        };
        immutable(&spec["scope"], &old_spec["scope"], path.child("scope"));
        immutable(
            &spec["names"]["kind"],
            &old_spec["names"]["kind"],
            path.child("names").child("kind"),
        );
    }
    for (new, old, at) in [
        (&spec["group"], &old_spec["group"], path.child("group")),
        (
            &spec["names"]["plural"],
            &old_spec["names"]["plural"],
            path.child("names").child("plural"),
        ),
    ] {
        if new != old {
            errors.push(Error::invalid(&at, new, "field is immutable"));
        }
    }
    validate_spec(spec, &path, &mut errors);
    errors.extend(approval::error(definition, Some(old)));
    let named: BTreeSet<&str> = versions(definition)
        .iter()
        .map(|version| text(version, "name"))
        .collect();
    let stored = Path::new("status").child("storedVersions");
    for (index, version) in list(&definition["status"], "storedVersions")
        .iter()
        .enumerate()
    {
        let name = version.as_str().unwrap_or_default();
        if !named.contains(name) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            errors.push(Error::invalid(&stored.index(index), name, detail));
        }
    }
    errors
}

fn validate_spec(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let group = text(spec, "group");
    if group.is_empty() {
        errors.push(Error::required(&path.child("group"), ""));
    } else {
        let texts = names::dns1123_subdomain(group);
        if !texts.is_empty() {
            errors.push(Error::invalid(&path.child("group"), group, texts.join(",")));
        } else if !group.contains('.') {
            errors.push(Error::invalid(
                &path.child("group"),
                group,
                "should be a domain with at least one dot",
            ));
        }
    }
    match text(spec, "scope") {
        "" => errors.push(Error::required(&path.child("scope"), "")),
        "Cluster" | "Namespaced" => {}
        other => errors.push(Error::not_supported(
            &path.child("scope"),
            other,
            &["Cluster", "Namespaced"],
        )),
    }
    let versions = list(spec, "versions");
    for (index, version) in versions.iter().enumerate() {
        let at = path.child("versions").index(index);
        if !version["schema"]["openAPIV3Schema"].is_object() {
            errors.push(Error::required(
                &at.child("schema").child("openAPIV3Schema"),
                "",
            ));
        }
    }
    for (index, version) in versions.iter().enumerate() {
        validate_version(version, &path.child("versions").index(index), errors);
    }
    let shown = &spec["versions"];
    let mut seen = BTreeSet::new();
    if !versions
        .iter()
        .all(|version| seen.insert(text(version, "name")))
    {
        errors.push(Error::invalid(
            &path.child("versions"),
            shown,
            "must contain unique version names",
        ));
    }
    if versions
        .iter()
        .filter(|version| version["storage"] == true)
        .count()
        != 1
    {
        let detail = "must have exactly one version marked as storage version";
        errors.push(Error::invalid(&path.child("versions"), shown, detail));
    }
    validate_names(&spec["names"], &path.child("names"), errors);
    if spec["preserveUnknownFields"] == true {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        errors.push(Error::invalid(
            &path.child("preserveUnknownFields"),
            true,
            detail,
        ));
    }
    validate_conversion(&spec["conversion"], &path.child("conversion"), errors);
}

fn validate_conversion(conversion: &Value, path: &Path, errors: &mut ErrorList) {
    match text(conversion, "strategy") {
        "None" => {
            if !conversion["webhook"].is_null() {
                let detail = "should not be set when strategy is not set to Webhook";
                errors.push(Error::forbidden(&path.child("webhookClientConfig"), detail));
            }
        }
        "" => errors.push(Error::required(&path.child("strategy"), "")),
        "Webhook" => {
            if conversion["webhook"]["clientConfig"].is_null() {
                let detail = "required when strategy is set to Webhook";
                errors.push(Error::required(&path.child("webhookClientConfig"), detail));
            }
        }
        other => errors.push(Error::not_supported(
            &path.child("strategy"),
            other,
            &["None", "Webhook"],
        )),
    }
}

fn validate_names(names: &Value, path: &Path, errors: &mut ErrorList) {
    for key in ["plural", "singular", "kind", "listKind"] {
        if text(names, key).is_empty() {
            errors.push(Error::required(&path.child(key), ""));
        }
    }
    for key in ["plural", "singular"] {
        label(text(names, key), "", &path.child(key), errors);
    }
    for key in ["kind", "listKind"] {
        let name = text(names, key);
        let texts = names::dns1035_label(&name.to_lowercase());
        if !name.is_empty() && !texts.is_empty() {
            let detail = format!(
                "may have mixed case, but should otherwise match: {}",
                texts.join(",")
            );
            errors.push(Error::invalid(&path.child(key), name, detail));
        }
    }
    for (index, name) in list(names, "shortNames").iter().enumerate() {
        label(
            name.as_str().unwrap_or_default(),
            "",
            &path.child("shortNames").index(index),
            errors,
        );
    }
    let list_kind = text(names, "listKind");
    if !list_kind.is_empty() && text(names, "kind") == list_kind {
        errors.push(Error::invalid(
            &path.child("listKind"),
            list_kind,
            "kind and listKind may not be the same",
        ));
    }
    for (index, name) in list(names, "categories").iter().enumerate() {
        label(
            name.as_str().unwrap_or_default(),
            "",
            &path.child("categories").index(index),
            errors,
        );
    }
}

fn label(name: &str, before: &str, path: &Path, errors: &mut ErrorList) {
    let texts = names::dns1035_label(name);
    if !name.is_empty() && !texts.is_empty() {
        errors.push(Error::invalid(
            path,
            name,
            format!("{before}{}", texts.join(",")),
        ));
    }
}

fn validate_version(version: &Value, path: &Path, errors: &mut ErrorList) {
    let name = text(version, "name");
    let texts = names::dns1035_label(name);
    if !texts.is_empty() {
        errors.push(Error::invalid(&path.child("name"), name, texts.join(",")));
    }
    if version["deprecated"] != true && version["deprecationWarning"].is_string() {
        let detail = "can only be set for deprecated versions";
        errors.push(Error::invalid(
            &path.child("deprecationWarning"),
            text(version, "deprecationWarning"),
            detail,
        ));
    }
    let schema = &version["schema"]["openAPIV3Schema"];
    if schema.is_object() {
        let with_status = version["subresources"]["status"].is_object();
        schema::validate_root(
            schema,
            with_status,
            &path.child("schema").child("openAPIV3Schema"),
            errors,
        );
    }
    validate_scale(
        &version["subresources"]["scale"],
        &path.child("subresources").child("scale"),
        errors,
    );
    for (index, column) in list(version, "additionalPrinterColumns").iter().enumerate() {
        validate_column(
            column,
            &path.child("additionalPrinterColumns").index(index),
            errors,
        );
    }
    let fields = list(version, "selectableFields");
    let mut seen = BTreeSet::new();
    for (index, field) in fields.iter().enumerate() {
        let at = path
            .child("selectableFields")
            .index(index)
            .child("jsonPath");
        let json_path = text(field, "jsonPath");
        if json_path.is_empty() {
            errors.push(Error::required(&at, ""));
        } else if json_path.starts_with(".metadata") {
            errors.push(Error::invalid(
                &at,
                json_path,
                "must not point to fields in metadata",
            ));
        } else {
            let found = json_path
                .trim_start_matches('.')
                .split('.')
                .fold(schema, |at, key| &at["properties"][key]);
            if found.is_null() {
                let detail = "is an invalid path: does not refer to a valid field".to_owned();
                errors.push(Error::invalid(&at, json_path, detail));
            } else if !matches!(text(found, "type"), "string" | "boolean" | "integer") {
                let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
                errors.push(Error::invalid(&at, json_path, detail));
            } else if !seen.insert(json_path) {
                errors.push(Error::duplicate(&at, json_path));
            }
        }
    }
    if seen.len() > 8 {
        errors.push(Error::too_many(
            &path.child("selectableFields"),
            seen.len(),
            8,
        ));
    }
}

fn validate_scale(scale: &Value, path: &Path, errors: &mut ErrorList) {
    if !scale.is_object() {
        return;
    }
    for (key, root) in [
        ("specReplicasPath", ".spec."),
        ("statusReplicasPath", ".status."),
    ] {
        let found = text(scale, key);
        if found.is_empty() {
            errors.push(Error::required(&path.child(key), ""));
        } else if !found.starts_with(root) {
            errors.push(Error::invalid(
                &path.child(key),
                found,
                format!("should be a json path under {}", root.trim_end_matches('.')),
            ));
        }
    }
}

fn validate_column(column: &Value, path: &Path, errors: &mut ErrorList) {
    const TYPES: &str = "boolean,date,integer,number,string";
    if text(column, "name").is_empty() {
        errors.push(Error::required(&path.child("name"), ""));
    }
    match text(column, "type") {
        "" => errors.push(Error::required(
            &path.child("type"),
            format!("must be one of {TYPES}"),
        )),
        kind if TYPES.split(',').any(|ty| ty == kind) => {}
        kind => errors.push(Error::invalid(
            &path.child("type"),
            kind,
            format!("must be one of {TYPES}"),
        )),
    }
    const FORMATS: &str = "byte,date,date-time,double,float,int32,int64,password";
    let format = text(column, "format");
    if !format.is_empty() && !FORMATS.split(',').any(|known| known == format) {
        errors.push(Error::invalid(
            &path.child("format"),
            format,
            format!("must be one of {FORMATS}"),
        ));
    }
    if text(column, "jsonPath").is_empty() {
        errors.push(Error::required(&path.child("JSONPath"), ""));
    }
}

#[cfg(test)]
mod tests;
