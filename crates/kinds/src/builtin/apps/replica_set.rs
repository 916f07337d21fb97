//! Replica sets.

use allot_apimachinery::field::{ErrorList, Path};
use serde_json::{Value, json};

use super::APPS;
use crate::object::meta;
use crate::registry::{Builtin, Rules, SCALE, STATUS};
use crate::table::age;
use crate::table::format::{self, number, with_template};
use crate::validate::workloads::{self, Counts, matching_template, numbers, selector};
use crate::warnings;

pub(super) static REPLICA_SET: Builtin = Builtin {
    kind: "ReplicaSet",
    plural: "replicasets",
    short: &["rs"],
    subresources: &[SCALE, STATUS],
    rules: Rules {
        fill_bookmark: |object| object["spec"]["replicas"] = json!(0),
        warnings_create: Some(warnings::new_template),
        validate,
        validate_update: Some(validate_update),
        validate_status: Some(|object, old, errors| {
            workloads::validate_status(&COUNTS, object, old, errors)
        }),
        table: Some((
            "Name|Desired:integer|Current:integer|Ready:integer|Age|Containers::1|Images::1|Selector::1",
            row,
        )),
        ..APPS.rules
    },
    ..APPS
};

/// Replication controllers report the same counts.
pub(in crate::builtin) const COUNTS: Counts = Counts {
    not_negative: &[
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
    ],
    within_replicas: &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
    more_than_ready: "cannot be greater than readyReplicas",
};

fn validate(object: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    numbers(spec, &["replicas", "minReadySeconds"], &path, errors);
    selector(spec, "deployment", &path, errors);
    matching_template(spec, "ReplicaSet", &path, errors);
}

fn validate_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    validate(object, errors);
    workloads::immutable_selector(object, old, errors);
}

pub(in crate::builtin) fn row(object: &Value) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let cells = vec![
        json!(meta(object, "name")),
        number(&spec["replicas"]),
        number(&status["replicas"]),
        number(&status["readyReplicas"]),
        age(object),
    ];
    with_template(object, cells, format::label_selector(&spec["selector"]))
}
