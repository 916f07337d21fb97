//! The groups of this server and of extension API servers in one order: by the priorities of their APIServices.

use std::cmp::Reverse;
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
    let extensions = core.extensions.all();
    let mut names = registry::groups(registry);
    if extensions.is_empty() {
        return names.iter().map(|name| own(registry, name)).collect();
    }
    for extension in &extensions {
        if !extension.group.is_empty() && !names.contains(&extension.group) {
            names.push(extension.group.clone());
        }
    }
    let mut groups: Vec<(u32, Group)> = names
        .iter()
        .map(|name| merge(registry, name, &extensions))
        .collect();
    groups.sort_by(|(a, one), (b, other)| (b, &one.name).cmp(&(a, &other.name)));
    groups.into_iter().map(|(_, group)| group).collect()
}

/// The core group.
pub(super) fn core_group(core: &ServerState, registry: &Registry) -> Group {
    merge(registry, "", &core.extensions.all()).1
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
fn merge(registry: &Registry, name: &str, extensions: &[Arc<Extension>]) -> (u32, Group) {
    let mut group = own(registry, name);
    let of_group = extensions.iter().filter(|it| it.group == name);
    for extension in of_group {
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
