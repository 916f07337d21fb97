//! The built-in kinds of Kubernetes 1.36: a folder for each API group, and in it a file for each kind or for a few that
//! share their rules.
//!
//! A file has all that the API server knows of its kind: names, versions and subresources, and what differs from
//! [`Rules::DEFAULT`](crate::registry::Rules::DEFAULT): preparation, validation, warnings, selectable fields, columns.
//! What is long is in a folder of the kind's name. What several kinds share is in `validate`, `table`, `warnings`.
//! Other modules name no kind; they read the rules of the resource of the request. To add a kind, write its file and add it to
//! `KINDS` of its group.

use allot_model::features::{Features, Release};

use crate::registry::{Builtin, Registry, RuntimeConfig};

mod admissionregistration;
mod apiextensions;
mod apiregistration;
mod apps;
mod authentication;
mod authorization;
mod autoscaling;
mod batch;
mod certificates;
mod coordination;
mod core;
mod discovery;
mod events;
mod flowcontrol;
mod networking;
mod node;
mod policy;
mod rbac;
mod resource;
mod scheduling;
mod storage;

pub use self::core::service_address_errors;

/// The kinds of all groups.
const GROUPS: [&[&Builtin]; 21] = [
    admissionregistration::KINDS,
    apiextensions::KINDS,
    apiregistration::KINDS,
    apps::KINDS,
    authentication::KINDS,
    authorization::KINDS,
    autoscaling::KINDS,
    batch::KINDS,
    certificates::KINDS,
    coordination::KINDS,
    core::KINDS,
    discovery::KINDS,
    events::KINDS,
    flowcontrol::KINDS,
    networking::KINDS,
    node::KINDS,
    policy::KINDS,
    rbac::KINDS,
    resource::KINDS,
    scheduling::KINDS,
    storage::KINDS,
];

/// All kinds, some of which are served only if they are enabled.
pub fn all() -> impl Iterator<Item = &'static Builtin> {
    GROUPS.into_iter().flatten().copied()
}

/// A kind by its group and plural name.
pub fn find(group: &str, plural: &str) -> Option<&'static Builtin> {
    all().find(|kind| kind.group == group && kind.plural == plural)
}

/// The other kinds that are stored in the collection of this one: each group of events has the events of the other one.
pub fn sharing_collection(group: &str, plural: &str) -> impl Iterator<Item = &'static Builtin> {
    let collection = find(group, plural).map(Builtin::stored_as);
    let group = group.to_owned();
    all().filter(move |kind| Some(kind.stored_as()) == collection && kind.group != group)
}

/// The built-in resources with the versions that `config` selects, those of `resource.k8s.io` as `release` has them.
pub fn registry(config: &RuntimeConfig, release: Release) -> Registry {
    let resources = all().map(|kind| kind.resource(config, release));
    // A kind that is newer than the release has no version in it.
    let resources = resources.filter(|resource| !resource.versions.is_empty());
    let newer =
        resources.filter_map(|resource| resource::release::in_release(resource, config, release));
    Registry::new(newer.chain(resource::release::resources(config, release)))
}

/// The same with the kinds of features that are on alone.
pub fn registry_with(config: &RuntimeConfig, features: &Features) -> Registry {
    let mut registry = registry(config, features.release());
    let off = all().filter(|kind| kind.gate.is_some_and(|gate| !features.enabled(gate)));
    off.for_each(|kind| registry.remove(kind.group, kind.plural));
    registry
}

#[cfg(test)]
mod tests;
