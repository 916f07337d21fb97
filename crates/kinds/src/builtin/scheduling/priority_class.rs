//! Priority classes.

use crate::registry::{Builtin, CLUSTER, Generation, Rules};
use crate::{table, validate};

pub(super) static PRIORITY_CLASS: Builtin = Builtin {
    group: "scheduling.k8s.io",
    kind: "PriorityClass",
    plural: "priorityclasses",
    short: &["pc"],
    rules: Rules {
        generation: Generation::FromCreate,
        validate: validate::config::priority_class,
        validate_update: Some(validate::config::priority_class_update),
        validates_metadata_again: false,
        refuses_delete: Some(refuses_delete),
        table: Some((
            "Name|Value:integer|Global-Default:boolean|Age|PreemptionPolicy",
            table::cluster::priority_class,
        )),
        ..Rules::DEFAULT
    },
    ..CLUSTER
};

/// The priority classes of critical system pods.
const SYSTEM_CLASSES: [&str; 2] = ["system-node-critical", "system-cluster-critical"];

fn refuses_delete(name: &str) -> Option<&'static str> {
    let system_class = SYSTEM_CLASSES.contains(&name);
    system_class.then_some("this is a system priority class and cannot be deleted")
}
