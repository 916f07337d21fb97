//! Resource quotas.

use allot_apimachinery::Quantity;
use serde_json::Value;

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
        warnings_create: Some(requests_above_limits),
        delete_returns_object: |_| true,
        table: Some(("Name|Request|Limit|Age", table::cluster::quota)),
        ..Rules::DEFAULT
    },
    ..BASE
};

/// What is requested should not exceed the limit of it.
fn requests_above_limits(quota: &Value) -> Vec<String> {
    let hard = &quota["spec"]["hard"];
    let amount = |name: &str| -> Option<Quantity> { hard[name].as_str()?.parse().ok() };
    let mut found = Vec::new();
    for (resource, bare) in [
        ("cpu", true),
        ("memory", true),
        ("storage", false),
        ("ephemeral-storage", false),
    ] {
        let mut requests = format!("requests.{resource}");
        if bare && hard[&requests].is_null() {
            requests = resource.to_owned();
        }
        let limits = format!("limits.{resource}");
        if let (Some(request), Some(limit)) = (amount(&requests), amount(&limits))
            && request > limit
        {
            found.push(format!(
                "ResourceQuota {requests} ({request}) should be less than {limits} ({limit})"
            ));
        }
    }
    found
}
