//! Namespaces.

use allot_apimachinery::names;
use serde_json::{Value, json};

use crate::object::{self, child_mut, metadata_mut};
use crate::registry::{
    Builtin, CLUSTER, ComputedField, NO_DELETE_ALL, Rules, STATUS, UPDATE, UnsupportedField,
};
use crate::request::Part;
use crate::strategy::keep;
use crate::{table, validate};

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
        prepare_update: Some(|namespace, old, part| {
            if part == Part::Main {
                let spec = object::child_entry(namespace, "spec");
                keep(spec, &old["spec"], "finalizers");
            }
        }),
        reset_fields: &[("finalize", &[&["status"]])],
        validate: |namespace, errors| validate::namespace::finalizers(namespace, true, errors),
        validate_status: Some(|namespace, _, errors| {
            validate::namespace::status(namespace, errors)
        }),
        validate_part: Some(|namespace, _, part, errors| {
            if part == Part::Finalize {
                validate::namespace::finalizers(namespace, false, errors);
            }
        }),
        spec_finalizers: true,
        selectable: &["status.phase", "name"],
        computed_fields: &[ComputedField {
            name: "name",
            reads: &["name"],
            value: |namespace| object::meta(namespace, "name").to_owned(),
        }],
        unsupported_field: UnsupportedField::NotSupported,
        table: Some(("Name|Status|Age", table::cluster::namespace)),
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
