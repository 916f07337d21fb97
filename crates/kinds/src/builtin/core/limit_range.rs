//! Limit ranges.

use crate::registry::{BASE, Builtin, Rules};
use crate::validate;

pub(super) static LIMIT_RANGE: Builtin = Builtin {
    kind: "LimitRange",
    plural: "limitranges",
    short: &["limits"],
    rules: Rules {
        create_on_update: true,
        names_by_uuid: true,
        validate: validate::scaling::limit_range,
        checks_metadata_change: |_| false,
        ..Rules::DEFAULT
    },
    ..BASE
};
