//! The versions of `resource.k8s.io` in each release, including releases before 1.31.

use allot_model::GROUP;
use allot_model::availability::{self, Served};
use allot_model::classic::{self, Kind};
use allot_model::features::Release;

use super::RULES;
use crate::registry::{ALL, RW, Resource, RuntimeConfig, Subresource, Version, collection_name};

/// The release whose classic kinds the default release can serve in addition.
const LAST_CLASSIC: u8 = 30;

/// A resource with the versions that a release has; `None` if it has none.
pub(in crate::builtin) fn in_release(
    mut resource: Resource,
    config: &RuntimeConfig,
    release: Release,
) -> Option<Resource> {
    if resource.group != GROUP {
        return Some(resource);
    }
    let kind = allot_model::Kind::from_plural(&resource.plural)?;
    resource.storage_version = kind.storage_version().name().to_owned();
    let known = std::mem::take(&mut resource.versions);
    let mut names = availability::versions(release, kind.name());
    names.extend(beside(config, release, kind.name()));
    resource.versions = names
        .into_iter()
        .map(|name| version(name, kind.name(), config, release, &known))
        .collect();
    serve_hub(&mut resource);
    (!resource.versions.is_empty()).then_some(resource)
}

/// Serves v1 to in-process components, which only support v1, for releases before 1.34, which serve other versions.
fn serve_hub(resource: &mut Resource) {
    const HUB: &str = "v1";
    let newer =
        |version: &Version| version.served && !classic::VERSIONS.contains(&version.name.as_str());
    if !resource.versions.iter().any(newer) {
        return;
    }
    match resource
        .versions
        .iter_mut()
        .find(|version| version.name == HUB)
    {
        Some(hub) => hub.internal = true,
        None if resource.storage_version == HUB => resource.versions.push(Version {
            name: HUB.to_owned(),
            served: false,
            internal: true,
            deprecation: String::new(),
            removed: String::new(),
        }),
        None => {}
    }
}

/// The resources that only exist in classic versions.
pub(in crate::builtin) fn resources(config: &RuntimeConfig, release: Release) -> Vec<Resource> {
    let own = Kind::ALL
        .into_iter()
        .filter(|kind| allot_model::Kind::from_plural(kind.plural()).is_none());
    let rows = own.filter_map(|kind| {
        let mut names = availability::versions(release, kind.name());
        names.extend(beside(config, release, kind.name()));
        let versions: Vec<_> = names
            .into_iter()
            .map(|name| version(name, kind.name(), config, release, &[]))
            .collect();
        let owned = |verbs: &[&str]| verbs.iter().map(|verb| (*verb).to_owned()).collect();
        let status = Subresource {
            name: "status".to_owned(),
            group: String::new(),
            version: String::new(),
            kind: kind.name().to_owned(),
            verbs: owned(RW),
        };
        Some(Resource {
            group: GROUP.to_owned(),
            storage_version: versions.first()?.name.clone(),
            versions,
            kind: kind.name().to_owned(),
            list_kind: format!("{}List", kind.name()),
            plural: kind.plural().to_owned(),
            singular: kind.name().to_lowercase(),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: kind.namespaced(),
            verbs: owned(ALL),
            subresources: if kind.has_status() {
                vec![status]
            } else {
                Vec::new()
            },
            collection: collection_name(GROUP, kind.plural()),
            custom: None,
            rules: &RULES,
            release,
        })
    });
    rows.collect()
}

/// The classic version that the default release and newer ones serve in addition if it is enabled by name.
fn beside(config: &RuntimeConfig, release: Release, kind: &str) -> Option<&'static str> {
    let last = availability::versions(Release::new(LAST_CLASSIC), kind);
    last.into_iter()
        .find(|version| release >= Release::DEFAULT && config.names(GROUP, version))
}

fn version(
    name: &str,
    kind: &str,
    config: &RuntimeConfig,
    release: Release,
    known: &[Version],
) -> Version {
    let default = availability::served(release, name, kind) == Served::ByDefault;
    let deprecated = known
        .iter()
        .find(|version| version.name == name && release >= Release::DEFAULT);
    Version {
        name: name.to_owned(),
        served: config.serves(GROUP, name, default),
        internal: false,
        deprecation: deprecated.map_or_else(String::new, |version| version.deprecation.clone()),
        removed: deprecated.map_or_else(String::new, |version| version.removed.clone()),
    }
}
