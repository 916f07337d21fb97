//! Replication controllers.

use crate::registry::{BASE, Builtin, Generation, Rules, SCALE, STATUS, UnsupportedField};
use crate::{table, validate, warnings};

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
        validate: |object, errors| {
            validate::apps::validate("replicationcontrollers", object, errors)
        },
        validate_status: Some(|object, old, errors| {
            validate::apps::validate_status("replicationcontrollers", object, old, errors)
        }),
        validates_metadata_again: false,
        warnings: warnings::template,
        warnings_create: Some(warnings::new_template),
        orphans_by_default: true,
        selectable: &["status.replicas"],
        unsupported_field: UnsupportedField::NotSupported,
        plain_selector: true,
        table: Some((
            "Name|Desired:integer|Current:integer|Ready:integer|Age|Containers::1|Images::1|Selector::1",
            table::workloads::replication_controller,
        )),
        ..Rules::DEFAULT
    },
    ..BASE
};
