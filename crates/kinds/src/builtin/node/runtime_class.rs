//! Runtime classes.

use crate::registry::{Builtin, CLUSTER, Rules};
use crate::{table, validate};

pub(super) static RUNTIME_CLASS: Builtin = Builtin {
    group: "node.k8s.io",
    kind: "RuntimeClass",
    plural: "runtimeclasses",
    rules: Rules {
        create_on_update: true,
        requires_version: |_| true,
        validate: validate::config::runtime_class,
        validate_update: Some(validate::config::runtime_class_update),
        table: Some(("Name|Handler|Age", table::cluster::runtime_class)),
        ..Rules::DEFAULT
    },
    ..CLUSTER
};
