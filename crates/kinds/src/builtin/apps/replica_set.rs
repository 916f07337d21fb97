//! Replica sets.

use super::APPS;
use crate::registry::{Builtin, Rules, SCALE, STATUS};
use crate::{table, validate, warnings};

pub(super) static REPLICA_SET: Builtin = Builtin {
    kind: "ReplicaSet",
    plural: "replicasets",
    short: &["rs"],
    subresources: &[SCALE, STATUS],
    rules: Rules {
        warnings_create: Some(warnings::new_template),
        validate: |object, errors| validate::apps::validate("replicasets", object, errors),
        validate_update: Some(|object, old, errors| {
            validate::apps::validate_update("replicasets", object, old, errors)
        }),
        validate_status: Some(|object, old, errors| {
            validate::apps::validate_status("replicasets", object, old, errors)
        }),
        table: Some((
            "Name|Desired:integer|Current:integer|Ready:integer|Age|Containers::1|Images::1|Selector::1",
            table::workloads::replica_set,
        )),
        ..APPS.rules
    },
    ..APPS
};
