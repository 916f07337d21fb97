//! Secrets.

use crate::registry::{BASE, Builtin, Rules, UnsupportedField};
use crate::{table, validate};

pub(super) static SECRET: Builtin = Builtin {
    kind: "Secret",
    plural: "secrets",
    rules: Rules {
        validate: validate::config::secret,
        validate_update: Some(validate::config::secret_update),
        selectable: &["type"],
        unsupported_field: UnsupportedField::NotSupported,
        table: Some(("Name|Type|Data|Age", table::cluster::secret)),
        ..Rules::DEFAULT
    },
    ..BASE
};
