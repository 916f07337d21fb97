//! IP addresses that services use.

use super::NETWORKING;
use crate::registry::{Builtin, Rules};
use crate::{table, validate};

pub(super) static IP_ADDRESS: Builtin = Builtin {
    kind: "IPAddress",
    plural: "ipaddresses",
    short: &["ip"],
    namespaced: false,
    rules: Rules {
        name: validate::ip_name,
        validate: validate::network::address,
        validate_update: Some(validate::network::address_update),
        validates_metadata_again: false,
        table: Some(("Name|ParentRef", table::network::ip_address)),
        ..NETWORKING.rules
    },
    ..NETWORKING
};
