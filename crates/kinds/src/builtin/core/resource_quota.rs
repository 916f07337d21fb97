//! Resource quotas.

use allot_apimachinery::Quantity;
use serde_json::{Value, json};

use crate::object::string_map;
use crate::registry::{BASE, Builtin, Rules, STATUS};
use crate::table::age;
use crate::table::format::name;

mod validation;

pub(super) static RESOURCE_QUOTA: Builtin = Builtin {
    kind: "ResourceQuota",
    plural: "resourcequotas",
    short: &["quota"],
    subresources: &[STATUS],
    rules: Rules {
        validate: validation::validate,
        validate_update: Some(validation::validate_update),
        validate_status: Some(|quota, _, errors| validation::validate_status(quota, errors)),
        validates_metadata_again: false,
        warnings_create: Some(requests_above_limits),
        delete_returns_object: |_| true,
        table: Some(("Name|Request|Limit|Age", row)),
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

fn row(object: &Value) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (resource, hard) in string_map(&object["status"]["hard"]) {
        let used = object["status"]["used"][&resource]
            .as_str()
            .unwrap_or("0")
            .to_owned();
        let shown = format!("{resource}: {used}/{hard}");
        if resource.starts_with("limits.") {
            limits.push(shown)
        } else {
            requests.push(shown)
        }
    }
    vec![
        name(object),
        json!(requests.join(", ")),
        json!(limits.join(", ")),
        age(object),
    ]
}
