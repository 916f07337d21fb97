//! The groups of this server and of extension API servers in one order: by the priorities of their APIServices.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::apiservices::priority;
use crate::extensions::Extension;
use crate::registry::{self, Registry, version_priority};
use crate::state::ServerState;

/// A group with its versions, the preferred one first.
pub(super) struct Group {
    pub name: String,
    pub versions: Vec<Version>,
}

/// A version, and the extension that serves it, if it is not this server.
pub(super) struct Version {
    pub name: String,
    pub extension: Option<Arc<Extension>>,
}

/// All groups but the core group, in the order in which clients prefer them.
pub(super) fn groups(core: &ServerState, registry: &Registry) -> Vec<Group> {
    let mut extensions = by_group(core);
    let mut names = registry::groups(registry);
    if extensions.is_empty() {
        return names.iter().map(|name| own(registry, name)).collect();
    }
    extensions.remove("");
    let known: BTreeSet<&String> = names.iter().collect();
    let others = extensions.keys().filter(|name| !known.contains(name));
    let others: Vec<String> = others.cloned().collect();
    names.extend(others);
    let mut groups: Vec<(u32, Group)> = names
        .iter()
        .map(|name| merge(registry, name, extensions.get(name)))
        .collect();
    groups.sort_by(|(a, one), (b, other)| (b, &one.name).cmp(&(a, &other.name)));
    groups.into_iter().map(|(_, group)| group).collect()
}

/// The core group.
pub(super) fn core_group(core: &ServerState, registry: &Registry) -> Group {
    merge(registry, "", by_group(core).get("")).1
}

/// A group by its name, unless it has no version.
pub(super) fn group(core: &ServerState, registry: &Registry, name: &str) -> Option<Group> {
    let (_, found) = merge(registry, name, by_group(core).get(name));
    (!found.versions.is_empty()).then_some(found)
}

/// The extensions by their groups.
fn by_group(core: &ServerState) -> BTreeMap<String, Vec<Arc<Extension>>> {
    let mut groups: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for extension in core.extensions.all() {
        let group = extension.group.clone();
        groups.entry(group).or_default().push(extension);
    }
    groups
}

fn own(registry: &Registry, name: &str) -> Group {
    let versions = registry::versions(registry, name).into_iter();
    let versions = versions.map(|name| Version {
        name,
        extension: None,
    });
    Group {
        name: name.to_owned(),
        versions: versions.collect(),
    }
}

/// A group with its priority, the highest of its versions.
fn merge(
    registry: &Registry,
    name: &str,
    extensions: Option<&Vec<Arc<Extension>>>,
) -> (u32, Group) {
    let mut group = own(registry, name);
    for extension in extensions.into_iter().flatten() {
        // An APIService with a service takes its version from this server.
        group.versions.retain(|it| it.name != extension.version);
        group.versions.push(Version {
            name: extension.version.clone(),
            extension: Some(extension.clone()),
        });
    }
    let of = |version: &Version| match &version.extension {
        Some(extension) => extension.priority,
        None => priority(registry, name, &version.name),
    };
    if group.versions.iter().any(|it| it.extension.is_some()) {
        let by_name = |version: &Version| version_priority(&version.name);
        group
            .versions
            .sort_by_cached_key(|it| Reverse((of(it).1, by_name(it))));
    }
    let priority = group.versions.iter().map(|it| of(it).0).max();
    (priority.unwrap_or_default(), group)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Server;

    /// For each group all others were looked at: minutes for each request of anybody.
    #[tokio::test]
    async fn regression_many_groups_cost_little() {
        let server = Server::in_memory().await.unwrap();
        let version = json!({"name": "v1", "served": true, "storage": true});
        let names = json!({"plural": "things", "kind": "Thing"});
        let definition = json!({
            "spec": {"group": "g", "names": names, "versions": [version]}, "status": {"acceptedNames": names},
        });
        let one = registry::of_definition(&definition, None);
        let mut registry = Registry::clone(&server.0.registry.load());
        let builtin = groups(&server.0, &registry).len();
        let most = 50_000;
        for number in 0..most {
            let mut another = one.clone();
            another.group = format!("g{number}");
            registry.insert_custom(another);
        }
        let found = groups(&server.0, &registry);
        assert_eq!(found.len(), builtin + most);
        assert_eq!(found.last().map(|it| it.name.as_str()), Some("g9999"));
        assert!(found.iter().all(|it| !it.versions.is_empty()));
        let by_name = |name| group(&server.0, &registry, name).map(|it| it.versions.len());
        assert_eq!(by_name("g7"), Some(1));
        assert_eq!(by_name("none"), None);
    }
}
