//! Volume attributes classes.

use super::STORAGE;
use crate::registry::{Builtin, Rules};
use crate::{table, validate};

pub(super) static VOLUME_ATTRIBUTES_CLASS: Builtin = Builtin {
    kind: "VolumeAttributesClass",
    plural: "volumeattributesclasses",
    short: &["vac"],
    rules: Rules {
        validate: validate::csi::attributes,
        validate_update: Some(validate::csi::attributes_update),
        table: Some((
            "Name|DriverName|Age",
            table::storage::volume_attributes_class,
        )),
        ..STORAGE.rules
    },
    ..STORAGE
};
