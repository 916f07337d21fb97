//! Component statuses, which are read-only and deprecated.

use crate::registry::{Builtin, CLUSTER, READ, Rules};
use crate::table;

pub(super) static COMPONENT_STATUS: Builtin = Builtin {
    kind: "ComponentStatus",
    plural: "componentstatuses",
    short: &["cs"],
    verbs: READ,
    deprecated: &[("v1", "v1.19", "")],
    rules: Rules {
        table: Some((
            "Name|Status|Message|Error",
            table::cluster::component_status,
        )),
        ..Rules::DEFAULT
    },
    ..CLUSTER
};
