//! Kind-specific behavior of handlers. The handlers themselves do not depend on the names of kinds.

use super::is_definition;
use crate::registry::Resource;

/// Upstream's storage prefix of a resource, which its messages about conflicts contain.
pub fn storage_prefix(resource: &Resource) -> String {
    let (group, plural) = (resource.group.as_str(), resource.plural.as_str());
    match (group, plural) {
        ("", "replicationcontrollers") => "controllers".to_owned(),
        ("", "endpoints") => "services/endpoints".to_owned(),
        ("", "nodes") => "minions".to_owned(),
        ("", "services") => "services/specs".to_owned(),
        ("networking.k8s.io", "ingresses") => "ingress".to_owned(),
        ("apiextensions.k8s.io" | "apiregistration.k8s.io", _) => format!("{group}/{plural}"),
        _ if resource.custom.is_some() => format!("{group}/{plural}"),
        _ => plural.to_owned(),
    }
}

/// Kinds that a `PUT` can create.
pub fn allows_create_on_update(resource: &Resource) -> bool {
    matches!(
        (resource.group.as_str(), resource.plural.as_str()),
        ("", "events" | "endpoints" | "limitranges" | "services")
            | ("coordination.k8s.io", "leases")
            | ("events.k8s.io", "events")
            | ("node.k8s.io", "runtimeclasses")
            | ("rbac.authorization.k8s.io", _)
    )
}

/// Kinds for which the server allocates addresses and ports before objects are stored, and releases them on deletion.
pub fn allocates_addresses(resource: &Resource) -> bool {
    resource.is("", "services")
}

/// Kinds for which the server generates a UUID as the name if the name is empty.
pub fn names_by_uuid(resource: &Resource) -> bool {
    resource.is("", "limitranges")
}

/// Kinds whose status is defaulted from the spec, so that a write of the status must include the spec.
pub fn defaults_status_from_spec(resource: &Resource) -> bool {
    is_definition(resource)
}
