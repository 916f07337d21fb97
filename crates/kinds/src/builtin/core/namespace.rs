//! Namespaces.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::{Value, json};

use crate::object::{self, child_mut, metadata_mut};
use crate::registry::{Builtin, CLUSTER, NO_DELETE_ALL, Rules, STATUS, UPDATE, UnsupportedField};
use crate::request::Part;
use crate::strategy::keep;
use crate::table::age;
use crate::table::format::name;
use crate::validate::{list, rule, text};

pub(super) static NAMESPACE: Builtin = Builtin {
    kind: "Namespace",
    plural: "namespaces",
    short: &["ns"],
    verbs: NO_DELETE_ALL,
    subresources: &[("finalize", "", "", "", UPDATE), STATUS],
    rules: Rules {
        name: names::dns1123_label,
        is_namespace: true,
        on_generated_name: Some(set_name_label),
        initialize: Some(initialize),
        // The spec of a namespace contains only its finalizers.
        prepare_part: Some(|namespace, old, _| keep(namespace, old, "status")),
        prepare_update: Some(|namespace, old, part| {
            if part == Part::Main {
                let spec = object::child_entry(namespace, "spec");
                keep(spec, &old["spec"], "finalizers");
            }
        }),
        reset_fields: &[("finalize", &[&["status"]])],
        validate: |namespace, errors| validate_finalizers(namespace, true, errors),
        validate_status: Some(|namespace, _, errors| validate_status(namespace, errors)),
        validate_part: Some(|namespace, _, part, errors| {
            if part == Part::Finalize {
                validate_finalizers(namespace, false, errors);
            }
        }),
        spec_finalizers: true,
        selects_namespace: false,
        selectable: &["status.phase"],
        unsupported_field: UnsupportedField::NotSupported,
        table: Some(("Name|Status|Age", row)),
        ..Rules::DEFAULT
    },
    ..CLUSTER
};

/// Other namespaces get the label with their name by defaulting.
fn set_name_label(object: &mut Value, name: &str) {
    metadata_mut(object);
    let labels = child_mut(&mut object["metadata"], "labels");
    labels.insert("kubernetes.io/metadata.name".to_owned(), name.into());
}

fn initialize(object: &mut Value) {
    object["status"] = json!({"phase": "Active"});
    let finalizers = child_mut(object, "spec")
        .entry("finalizers")
        .or_insert_with(|| json!([]));
    if let Value::Array(list) = finalizers
        && !list.iter().any(|it| it == "kubernetes")
    {
        list.push("kubernetes".into());
    }
}

/// Validates a status: its phase must match the deletion timestamp of the metadata.
fn validate_status(namespace: &Value, errors: &mut ErrorList) {
    let ends = namespace["metadata"]["deletionTimestamp"].is_string();
    let phase = text(&namespace["status"], "phase");
    let (wanted, detail) = if ends {
        let detail = "may only be 'Terminating' if `deletionTimestamp` is not empty";
        ("Terminating", detail)
    } else {
        let detail = "may only be 'Active' if `deletionTimestamp` is empty";
        ("Active", detail)
    };
    if phase != wanted {
        let path = Path::new("status").child("Phase");
        errors.push(Error::invalid(&path, phase, detail));
    }
}

/// Checks what holds a namespace. For a new one upstream does not tell which of them is wrong.
fn validate_finalizers(namespace: &Value, is_new: bool, errors: &mut ErrorList) {
    let path = Path::new("spec").child("finalizers");
    for (index, finalizer) in list(&namespace["spec"], "finalizers").iter().enumerate() {
        let name = finalizer.as_str().unwrap_or_default();
        let at = match is_new {
            true => path.clone(),
            false => path.index(index),
        };
        rule(names::qualified_name(name), name, &at, errors);
        if !name.contains('/') && !matches!(name, "kubernetes" | "orphan" | "foregroundDeletion") {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(Error::invalid(&at, name, detail));
        }
    }
}

fn row(object: &Value) -> Vec<Value> {
    vec![
        name(object),
        json!(object::text(object, &["status", "phase"])),
        age(object),
    ]
}
