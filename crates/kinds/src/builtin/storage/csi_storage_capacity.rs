//! CSI storage capacities.

use super::STORAGE;
use crate::registry::{Builtin, Rules};
use crate::validate;

pub(super) static CSI_STORAGE_CAPACITY: Builtin = Builtin {
    kind: "CSIStorageCapacity",
    plural: "csistoragecapacities",
    namespaced: true,
    rules: Rules {
        requires_version: |_| true,
        validate: validate::csi::capacity,
        validate_update: Some(validate::csi::capacity_update),
        delete_returns_object: |_| false,
        ..STORAGE.rules
    },
    ..STORAGE
};
