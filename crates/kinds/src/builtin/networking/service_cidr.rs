//! Ranges of the cluster IPs of services.

use super::NETWORKING;
use crate::registry::{ALL_METADATA, Builtin, Rules, STATUS};
use crate::{table, validate};

pub(super) static SERVICE_CIDR: Builtin = Builtin {
    kind: "ServiceCIDR",
    plural: "servicecidrs",
    namespaced: false,
    subresources: &[STATUS],
    rules: Rules {
        status_keeps: ALL_METADATA,
        status_ignores_deletion: true,
        validate: validate::network::range,
        validate_update: Some(validate::network::range_update),
        validates_metadata_again: false,
        table: Some(("Name|CIDRs|Age", table::network::service_cidr)),
        ..NETWORKING.rules
    },
    ..NETWORKING
};
