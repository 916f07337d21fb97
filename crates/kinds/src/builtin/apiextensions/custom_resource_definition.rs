//! Custom resource definitions.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_model::validate::meta as meta_rules;
use allot_schema::definition;
use serde_json::Value;

use crate::object::{self, meta, metadata_mut, strings};
use crate::registry::{Builtin, CLUSTER, Generation, MetadataErrors, Rules, STATUS};
use crate::request::Part;

pub(super) static CUSTOM_RESOURCE_DEFINITION: Builtin = Builtin {
    group: "apiextensions.k8s.io",
    kind: "CustomResourceDefinition",
    plural: "customresourcedefinitions",
    short: &["crd", "crds"],
    categories: &["api-extensions"],
    subresources: &[STATUS],
    rules: Rules {
        storage_prefix: "apiextensions.k8s.io/customresourcedefinitions",
        requires_version: |_| true,
        defaults: Some(|_, _, definition| definition::default(definition)),
        defaults_status_from_spec: true,
        initialize: Some(definition::initial_status),
        prepare_update: Some(|definition, _, part| {
            if part == Part::Main {
                definition::note_storage_version(definition);
            }
        }),
        generation: Generation::FromCreate,
        status_ignores_deletion: true,
        validate_create: Some(validate_create),
        validate_update: Some(validate_update),
        validate_status: Some(|definition, _, errors| {
            errors.extend(definition::validate_status(definition))
        }),
        metadata_errors: MetadataErrors::WithName,
        own_finalizers: true,
        // They come between the errors of a change of the metadata and those of the metadata as a whole.
        validates_metadata_again: false,
        warnings_create: Some(|definition| formats(definition, &Value::Null)),
        warnings_update: Some(formats),
        delete_by_update: Some(mark_deleted),
        ..Rules::DEFAULT
    },
    ..CLUSTER
};

fn validate_create(definition: &Value, errors: &mut ErrorList) {
    for key in ["generateName", "name"] {
        let name = meta(definition, key);
        if !name.is_empty() && name != definition::required_name(definition) {
            let detail = "must be spec.names.plural+\".\"+spec.group";
            let path = Path::new("metadata").child(key);
            errors.push(Error::invalid(&path, name, detail));
        }
    }
    errors.extend(definition::validate(definition));
}

fn validate_update(definition: &Value, old: &Value, errors: &mut ErrorList) {
    errors.extend(definition::validate_update(definition, old));
    errors.extend(meta_rules::any_object_meta(
        &definition["metadata"],
        CUSTOM_RESOURCE_DEFINITION.namespaced,
        CUSTOM_RESOURCE_DEFINITION.rules.name,
        &Path::new("metadata"),
    ));
}

/// Marks a CRD that a client deletes for deletion: its custom objects are deleted first.
fn mark_deleted(definition: &mut Value) {
    let metadata = metadata_mut(definition);
    let mut finalizers = strings(metadata.get("finalizers").unwrap_or(&Value::Null));
    if !finalizers
        .iter()
        .any(|finalizer| finalizer == definition::CLEANUP_FINALIZER)
    {
        finalizers.push(definition::CLEANUP_FINALIZER.to_owned());
    }
    metadata.insert("finalizers".to_owned(), finalizers.into());
    let message =
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    definition::set_condition(
        definition,
        "Terminating",
        "True",
        "InstanceDeletionPending",
        message,
        &object::now(),
    );
}

/// Unsupported formats in a CRD that are new.
fn formats(definition: &Value, old: &Value) -> Vec<String> {
    let had = definition::unknown_formats(old);
    let has = definition::unknown_formats(definition);
    let new = has.into_iter().filter(|format| !had.contains(format));
    new.map(|format| format!("unrecognized format {format:?}"))
        .collect()
}
