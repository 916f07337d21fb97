//! CSI nodes: the CSI drivers of a node.

use super::STORAGE;
use crate::registry::{Builtin, Rules};
use crate::{table, validate};

pub(super) static CSI_NODE: Builtin = Builtin {
    kind: "CSINode",
    plural: "csinodes",
    rules: Rules {
        requires_version: |_| true,
        validate: validate::csi::node,
        validate_update: Some(validate::csi::node_update),
        checks_metadata_change: |_| false,
        table: Some(("Name|Drivers:integer|Age", table::storage::csi_node)),
        ..STORAGE.rules
    },
    ..STORAGE
};
