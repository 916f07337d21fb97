//! Storage classes.

use super::STORAGE;
use crate::registry::{Builtin, Rules};
use crate::{table, validate};

pub(super) static STORAGE_CLASS: Builtin = Builtin {
    kind: "StorageClass",
    plural: "storageclasses",
    short: &["sc"],
    rules: Rules {
        validate: validate::storage::class,
        validate_update: Some(validate::storage::class_update),
        table: Some((
            "Name|Provisioner|ReclaimPolicy|VolumeBindingMode|AllowVolumeExpansion|Age",
            table::storage::storage_class,
        )),
        ..STORAGE.rules
    },
    ..STORAGE
};
