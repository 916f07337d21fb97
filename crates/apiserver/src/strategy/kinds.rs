//! What handlers do differently for some kinds. They ask here and know no kind by name.

use super::is_definition;
use crate::registry::Resource;

/// Where upstream keeps the objects of a resource, which its messages about conflicts tell.
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

/// Kinds that a `PUT` may create.
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

/// Objects get addresses and ports from the server before they are stored, and give them up when they go.
pub fn allocates_addresses(resource: &Resource) -> bool {
    resource.is("", "services")
}

/// An object without a name gets a UUID as one.
pub fn names_by_uuid(resource: &Resource) -> bool {
    resource.is("", "limitranges")
}

/// The defaults of the status come from the spec, which a write of the status has to carry along.
pub fn defaults_status_from_spec(resource: &Resource) -> bool {
    is_definition(resource)
}
