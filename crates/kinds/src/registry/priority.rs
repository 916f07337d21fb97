//! The order of groups and versions: which one a client prefers.

use super::Registry;

/// Groups with something served, apart from the core group, in the order in which clients prefer them.
pub fn groups(registry: &Registry) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for resource in registry.iter() {
        // They are in the order of their groups.
        if !resource.group.is_empty()
            && names.last() != Some(&resource.group)
            && resource.versions.iter().any(|it| it.served)
        {
            names.push(resource.group.clone());
        }
    }
    names.sort_by_cached_key(|name| {
        (
            PRIORITY
                .iter()
                .position(|known| known == name)
                .unwrap_or(PRIORITY.len()),
            name.clone(),
        )
    });
    names
}

/// Upstream's order of the built-in groups; others follow by name.
const PRIORITY: [&str; 20] = [
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
    "flowcontrol.apiserver.k8s.io",
];

/// A group of built-in kinds.
pub fn is_builtin_group(name: &str) -> bool {
    name.is_empty() || PRIORITY.contains(&name)
}

/// Served versions of a group, preferred first.
pub fn versions(registry: &Registry, group: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for resource in registry.of_group(group) {
        for version in resource.versions.iter().filter(|version| version.served) {
            if !names.contains(&version.name) {
                names.push(version.name.clone());
            }
        }
    }
    names.sort_by_key(|name| {
        let (stage, major, minor, _) = version_priority(name);
        std::cmp::Reverse((stage, major, minor))
    });
    names
}

/// The order of versions: stable before beta before alpha, then by number; other names last, in reverse alphabetical
/// order.
pub fn version_priority(name: &str) -> (u8, u64, u64, std::cmp::Reverse<String>) {
    let parsed = name.strip_prefix('v').and_then(|rest| {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let major: u64 = rest[..digits].parse().ok()?;
        let (stage, minor) = match &rest[digits..] {
            "" => (3, 0),
            rest => match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
                (Some(minor), _) => (2, minor.parse().ok()?),
                (_, Some(minor)) => (1, minor.parse().ok()?),
                _ => return None,
            },
        };
        Some((stage, major, minor))
    });
    match parsed {
        Some((stage, major, minor)) => (stage, major, minor, std::cmp::Reverse(String::new())),
        None => (0, 0, 0, std::cmp::Reverse(name.to_owned())),
    }
}
