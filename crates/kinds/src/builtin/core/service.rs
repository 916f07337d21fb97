//! Services.

use allot_apimachinery::names;

use crate::registry::{BASE, Builtin, PROXY, Rules, STATUS, UnsupportedField};
use crate::request::Part;
use crate::strategy::services::follow_type;
use crate::{table, validate, warnings};

pub(super) static SERVICE: Builtin = Builtin {
    kind: "Service",
    plural: "services",
    short: &["svc"],
    categories: &["all"],
    subresources: &[("proxy", "ServiceProxyOptions", "", "", PROXY), STATUS],
    rules: Rules {
        name: names::dns1123_label,
        storage_prefix: "services/specs",
        create_on_update: true,
        allocates_addresses: true,
        prepare_update: Some(|service, old, part| {
            if part == Part::Main {
                follow_type(service, old);
            }
        }),
        validate: validate::service::validate,
        validate_update: Some(validate::service::validate_update),
        validate_status: Some(|service, _, errors| {
            validate::service::validate_status(service, errors)
        }),
        validates_metadata_again: false,
        warnings: warnings::service,
        delete_returns_object: |_| true,
        selectable: &["spec.clusterIP", "spec.type"],
        unsupported_field: UnsupportedField::NotSupported,
        table: Some((
            "Name|Type|Cluster-IP|External-IP|Port(s)|Age|Selector::1",
            table::network::service,
        )),
        ..Rules::DEFAULT
    },
    ..BASE
};
