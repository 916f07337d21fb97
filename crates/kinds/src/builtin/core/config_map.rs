//! Config maps.

use crate::registry::{BASE, Builtin, Rules};
use crate::{table, validate};

pub(super) static CONFIG_MAP: Builtin = Builtin {
    kind: "ConfigMap",
    plural: "configmaps",
    short: &["cm"],
    rules: Rules {
        validate: validate::config::config_map,
        validate_update: Some(validate::config::config_map_update),
        table: Some(("Name|Data|Age", table::cluster::config_map)),
        ..Rules::DEFAULT
    },
    ..BASE
};
