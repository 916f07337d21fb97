//! Replication controllers.

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::Value;

use crate::builtin::apps::replica_set;
use crate::registry::{
    BASE, Builtin, ComputedField, Generation, Rules, SCALE, STATUS, UnsupportedField,
};
use crate::table::format;
use crate::validate::workloads::{self, endless};
use crate::validate::{entries, not_negative, pod};
use crate::warnings;

pub(super) static REPLICATION_CONTROLLER: Builtin = Builtin {
    kind: "ReplicationController",
    plural: "replicationcontrollers",
    short: &["rc"],
    categories: &["all"],
    subresources: &[SCALE, STATUS],
    rules: Rules {
        storage_prefix: "controllers",
        pod_template: Some(&["spec", "template"]),
        generation: Generation::FromCreate,
        validate,
        validate_status: Some(|object, old, errors| {
            workloads::validate_status(&replica_set::COUNTS, object, old, errors)
        }),
        validates_metadata_again: false,
        warnings: warnings::template,
        warnings_create: Some(warnings::new_template),
        // Upstream warns about the template before the change, probably by mistake: hence the order of the arguments.
        warnings_update: Some(|controller, old| {
            warnings::after_change(old, controller, warnings::template)
        }),
        orphans_by_default: true,
        selectable: &["status.replicas"],
        computed_fields: &[ComputedField {
            name: "status.replicas",
            reads: &["status.replicas"],
            value: |controller| {
                controller["status"]["replicas"]
                    .as_i64()
                    .unwrap_or(0)
                    .to_string()
            },
        }],
        unsupported_field: UnsupportedField::NotSupported,
        plain_selector: true,
        table: Some((
            "Name|Desired:integer|Current:integer|Ready:integer|Age|Containers::1|Images::1|Selector::1",
            row,
        )),
        ..Rules::DEFAULT
    },
    ..BASE
};

fn validate(object: &Value, errors: &mut ErrorList) {
    validate_spec(&object["spec"], &Path::new("spec"), errors);
}

fn validate_spec(spec: &Value, path: &Path, errors: &mut ErrorList) {
    not_negative(
        &spec["minReadySeconds"],
        &path.child("minReadySeconds"),
        errors,
    );
    let at = path.child("selector");
    let wanted = &spec["selector"];
    if wanted.as_object().is_none_or(serde_json::Map::is_empty) {
        errors.push(Error::required(&at, ""));
    }
    not_negative(&spec["replicas"], &path.child("replicas"), errors);
    let at = path.child("template");
    if !spec["template"].is_object() {
        errors.push(Error::required(&at, ""));
        return;
    }
    let labels = &spec["template"]["metadata"]["labels"];
    if !entries(spec, "selector").all(|(key, value)| labels.get(key) == Some(value)) {
        let at = at.child("metadata").child("labels");
        let detail = "`selector` does not match template `labels`";
        let shown = workloads::sent_labels(labels, &at);
        errors.push(Error::invalid(&at, &shown, detail));
    }
    pod::template(&spec["template"], &at, errors);
    endless(spec, "ReplicationController", &at, errors);
}

fn row(object: &Value) -> Vec<Value> {
    let mut cells = replica_set::row(object);
    if let Some(last) = cells.last_mut() {
        *last = format::labels(&object["spec"]["selector"]).into();
    }
    cells
}
