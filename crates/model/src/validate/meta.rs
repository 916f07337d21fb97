//! Object metadata, as all kinds of Kubernetes validate it.

use std::collections::BTreeSet;

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::names as rules;
use allot_apimachinery::quote::{go_json, quote};
use serde_json::Value;

use super::common::invalid;
use super::names;
use crate::limits;
use crate::shape::{self, tables};
use crate::view::{View, texts};

const IMMUTABLE: &str = "field is immutable";

/// A rule for names: returns the errors.
pub type NameRule = fn(&str) -> Vec<String>;

/// Validates the metadata of a new object of a built-in kind: as [`any_object_meta`], and finalizers must be standard or
/// fully qualified.
pub fn object_meta(
    metadata: &Value,
    namespaced: bool,
    name_rule: NameRule,
    path: &Path,
) -> ErrorList {
    let mut errors = any_object_meta(metadata, namespaced, name_rule, path);
    errors.extend(finalizer_domains(metadata, path));
    errors
}

/// Checks the metadata of a new object of any kind. `metadata` is the value at `path`; `name_rule` judges names and, with a trailing dash
/// masked, prefixes of generated names.
pub fn any_object_meta(
    metadata: &Value,
    namespaced: bool,
    name_rule: NameRule,
    path: &Path,
) -> ErrorList {
    let mut errors = ErrorList::new();
    let prefix = metadata.text("generateName");
    if !prefix.is_empty() {
        errors.extend(invalid(
            &path.child("generateName"),
            prefix,
            name_rule(&rules::mask_trailing_dash(prefix)),
        ));
    }
    let name = metadata.text("name");
    let name_path = path.child("name");
    if name.is_empty() {
        errors.push(Error::required(
            &name_path,
            "name or generateName is required",
        ));
    } else {
        errors.extend(invalid(&name_path, name, name_rule(name)));
    }
    let namespace = metadata.text("namespace");
    let namespace_path = path.child("namespace");
    match (namespaced, namespace.is_empty()) {
        (true, true) => errors.push(Error::required(&namespace_path, "")),
        (true, false) => errors.extend(invalid(
            &namespace_path,
            namespace,
            rules::dns1123_label(namespace),
        )),
        (false, true) => {}
        (false, false) => errors.push(Error::forbidden(
            &namespace_path,
            "not allowed on this type",
        )),
    }
    let generation = metadata.int("generation");
    if generation < 0 {
        let text = "must be greater than or equal to 0";
        errors.push(Error::invalid(&path.child("generation"), generation, text));
    }
    errors.extend(labels_and_annotations(metadata, path));
    errors.extend(owner_references(
        metadata.at("ownerReferences"),
        &path.child("ownerReferences"),
    ));
    errors.extend(finalizers(
        metadata.list("finalizers"),
        &path.child("finalizers"),
    ));
    errors.extend(managed_fields(
        metadata.list("managedFields"),
        &path.child("managedFields"),
    ));
    errors
}

/// Checks metadata that replaces `old`, of a kind that Kubernetes brings.
pub fn object_meta_update(metadata: &Value, old: &Value, path: &Path) -> ErrorList {
    let mut errors = any_object_meta_update(metadata, old, path);
    errors.extend(finalizer_domains(metadata, path));
    errors
}

/// Checks metadata that replaces `old`, of any kind.
pub fn any_object_meta_update(metadata: &Value, old: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let finalizers_path = path.child("finalizers");
    if old.has("deletionTimestamp") {
        errors.extend(no_new_finalizers(
            metadata.list("finalizers"),
            old.list("finalizers"),
            &finalizers_path,
        ));
    }
    if metadata.text("resourceVersion").is_empty() {
        let text = "must be specified for an update";
        errors.push(Error::invalid(&path.child("resourceVersion"), "", text));
    }
    let generation = metadata.int("generation");
    if generation < old.int("generation") {
        errors.push(Error::invalid(
            &path.child("generation"),
            generation,
            "must not be decremented",
        ));
    }
    for key in ["name", "namespace"] {
        if metadata.text(key) != old.text(key) {
            errors.push(Error::invalid(
                &path.child(key),
                metadata.text(key),
                IMMUTABLE,
            ));
        }
    }
    if metadata.text("uid") != old.text("uid") {
        let uid = BadValue::raw(go_json(&Value::from(metadata.text("uid"))));
        errors.push(Error::invalid(&path.child("uid"), uid, IMMUTABLE));
    }
    for key in ["creationTimestamp", "deletionTimestamp"] {
        if !shape::equal(shape::Ty::Time, metadata.at(key), old.at(key)) {
            let time = BadValue::raw(shape::quote(shape::Ty::Time, metadata.at(key)));
            errors.push(Error::invalid(&path.child(key), time, IMMUTABLE));
        }
    }
    if metadata.at("deletionGracePeriodSeconds") != old.at("deletionGracePeriodSeconds") {
        let seconds = metadata.at("deletionGracePeriodSeconds");
        errors.push(Error::invalid(
            &path.child("deletionGracePeriodSeconds"),
            seconds,
            IMMUTABLE,
        ));
    }
    errors.extend(labels_and_annotations(metadata, path));
    errors.extend(owner_references(
        metadata.at("ownerReferences"),
        &path.child("ownerReferences"),
    ));
    errors.extend(managed_fields(
        metadata.list("managedFields"),
        &path.child("managedFields"),
    ));
    errors
}

/// Checks the metadata of a template: only labels and annotations may be set.
pub fn template_meta(metadata: &Value, path: &Path) -> ErrorList {
    let mut errors = annotations(metadata, &path.child("annotations"));
    errors.extend(labels(metadata, &path.child("labels")));
    for field in tables::OBJECT_META.fields {
        if matches!(field.json, "labels" | "annotations") {
            continue;
        }
        if !shape::is_zero(field, metadata.at(field.json)) {
            // Upstream names the field after that of the Go struct.
            let name = if field.json == "uid" {
                "uID"
            } else {
                field.json
            };
            errors.push(Error::forbidden(&path.child(name), "cannot be set"));
        }
    }
    errors
}

fn labels_and_annotations(metadata: &Value, path: &Path) -> ErrorList {
    let mut errors = labels(metadata, &path.child("labels"));
    errors.extend(annotations(metadata, &path.child("annotations")));
    errors
}

/// Checks the labels of `metadata`, which are at `path`.
pub fn labels(metadata: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    for (key, value) in metadata.entries("labels").iter() {
        errors.extend(names::label_name(key, path));
        errors.extend(names::label_value(value.as_str().unwrap_or_default(), path));
    }
    errors
}

/// Checks the annotations of `metadata`, which are at `path`.
pub fn annotations(metadata: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut size = 0;
    for (key, value) in metadata.entries("annotations").iter() {
        // Case does not matter in annotation keys.
        errors.extend(invalid(
            path,
            key,
            rules::qualified_name(&key.to_lowercase()),
        ));
        size += key.len() + value.as_str().unwrap_or_default().len();
    }
    if size > limits::ANNOTATIONS {
        errors.push(Error::too_long(path, limits::ANNOTATIONS));
    }
    errors
}

/// The number of repeated controllers that are reported.
const MOST_REPEATED: usize = 4;

fn owner_references(references: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut controller: Option<String> = None;
    let mut repeated = 0;
    // Upstream's paths lack the index.
    for reference in references.as_array().into_iter().flatten() {
        let (api_version, kind) = (reference.text("apiVersion"), reference.text("kind"));
        let version = api_version.rsplit('/').next().unwrap_or_default();
        if version.is_empty() || api_version.matches('/').count() > 1 {
            errors.push(Error::invalid(
                &path.child("apiVersion"),
                api_version,
                "version must not be empty",
            ));
        }
        for key in ["kind", "name", "uid"] {
            if reference.text(key).is_empty() {
                errors.push(Error::invalid(&path.child(key), "", "must not be empty"));
            }
        }
        if (api_version, kind) == ("v1", "Event") {
            let shown = BadValue::raw(shape::quote(tables::OWNER, reference));
            errors.push(Error::invalid(
                path,
                shown,
                "/v1, Kind=Event is disallowed from being an owner",
            ));
        }
        if reference.opt_bool("controller") != Some(true) {
            continue;
        }
        let current = format!("{kind}/{}", reference.text("name"));
        match &controller {
            None => controller = Some(current),
            // Each error contains all references: a few say as much as one for each of thousands.
            Some(_) if repeated >= MOST_REPEATED => {}
            Some(first) => {
                repeated += 1;
                let text = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {current}"
                );
                let shown = BadValue::raw(shape::quote(tables::OWNERS, references));
                errors.push(Error::invalid(path, shown, text));
            }
        }
    }
    errors
}

fn finalizers(finalizers: &[Value], path: &Path) -> ErrorList {
    let mut errors: ErrorList = texts(finalizers)
        .flat_map(|finalizer| names::label_name(finalizer, path))
        .collect();
    let has = |name: &str| texts(finalizers).any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        let shown = BadValue::raw(go_json(&Value::from(finalizers.to_vec())));
        let text = "finalizer orphan and foregroundDeletion cannot be both set";
        errors.push(Error::invalid(path, shown, text));
    }
    errors
}

fn finalizer_domains(metadata: &Value, path: &Path) -> ErrorList {
    let path = path.child("finalizers");
    let mut errors = ErrorList::new();
    for (index, finalizer) in texts(metadata.list("finalizers")).enumerate() {
        if !finalizer.contains('/')
            && !matches!(finalizer, "kubernetes" | "orphan" | "foregroundDeletion")
        {
            let text = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(Error::invalid(&path.index(index), finalizer, text));
        }
    }
    errors
}

fn no_new_finalizers(new: &[Value], old: &[Value], path: &Path) -> ErrorList {
    let old: BTreeSet<&str> = texts(old).collect();
    let added: BTreeSet<&str> = texts(new)
        .filter(|finalizer| !old.contains(finalizer))
        .collect();
    if added.is_empty() {
        return ErrorList::new();
    }
    let shown: Vec<_> = added.into_iter().map(quote).collect();
    let text = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        shown.join(", ")
    );
    ErrorList::from([Error::forbidden(path, text)])
}

fn managed_fields(entries: &[Value], path: &Path) -> ErrorList {
    const MAX_NAME: usize = 128;
    const MAX_SUBRESOURCE: usize = 256;
    let mut errors = ErrorList::new();
    for (index, entry) in entries.iter().enumerate() {
        let path = path.index(index);
        let operation = entry.text("operation");
        if !matches!(operation, "Apply" | "Update") {
            let shown = BadValue::raw(go_json(&Value::from(operation)));
            errors.push(Error::invalid(
                &path.child("operation"),
                shown,
                "must be `Apply` or `Update`",
            ));
        }
        let fields_type = entry.text("fieldsType");
        if !fields_type.is_empty() && fields_type != "FieldsV1" {
            errors.push(Error::invalid(
                &path.child("fieldsType"),
                fields_type,
                "must be `FieldsV1`",
            ));
        }
        let manager = entry.text("manager");
        let manager_path = path.child("manager");
        if manager.len() > MAX_NAME {
            errors.push(Error::too_long(&manager_path, MAX_NAME));
        }
        if manager
            .chars()
            .any(|c| !allot_apimachinery::quote::is_print(c))
        {
            errors.push(Error::invalid(
                &manager_path,
                manager,
                "should only contain printable characters",
            ));
        }
        if entry.text("subresource").len() > MAX_SUBRESOURCE {
            errors.push(Error::too_long(&path.child("subresource"), MAX_SUBRESOURCE));
        }
    }
    errors
}
