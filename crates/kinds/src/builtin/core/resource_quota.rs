//! Resource quotas.

use crate::registry::{BASE, Builtin, Rules, STATUS};
use crate::{table, validate};

pub(super) static RESOURCE_QUOTA: Builtin = Builtin {
    kind: "ResourceQuota",
    plural: "resourcequotas",
    short: &["quota"],
    subresources: &[STATUS],
    rules: Rules {
        validate: validate::quota::validate,
        validate_update: Some(validate::quota::update),
        validate_status: Some(|quota, _, errors| validate::quota::used(quota, errors)),
        validates_metadata_again: false,
        delete_returns_object: |_| true,
        table: Some(("Name|Request|Limit|Age", table::cluster::quota)),
        ..Rules::DEFAULT
    },
    ..BASE
};
