//! Quotas of namespaces.

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::Value;

/// Names and amounts of a quota.
pub(super) fn validate(object: &Value, errors: &mut ErrorList) {
    const STANDARD: [&str; 20] = [
        "configmaps",
        "cpu",
        "ephemeral-storage",
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "memory",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
        "requests.storage",
        "resourcequotas",
        "secrets",
        "services",
        "services.loadbalancers",
        "services.nodeports",
        "storage",
    ];
    let path = Path::new("spec").child("hard");
    for (name, amount) in object["spec"]["hard"].as_object().into_iter().flatten() {
        let at = path.key(name);
        for text in allot_apimachinery::names::qualified_name(name) {
            errors.push(Error::invalid(&at, name.as_str(), text));
        }
        if !name.contains('/') && !STANDARD.contains(&name.as_str()) {
            errors.push(Error::invalid(
                &at,
                name.as_str(),
                "must be a standard resource for quota",
            ));
        }
        let text = amount
            .as_str()
            .map_or_else(|| amount.to_string(), str::to_owned);
        if text
            .parse::<allot_apimachinery::Quantity>()
            .is_ok_and(|amount| amount.milli_value() < 0)
        {
            errors.push(Error::invalid(
                &at,
                text.as_str(),
                "must be greater than or equal to 0",
            ));
        }
    }
}
