//! The built-in resources of Kubernetes 1.36, one row each.

use allot_model::features::Release;

use super::{Resource, RuntimeConfig, Subresource, Version, collection_name};

mod control;
mod core;
mod workloads;

/// A built-in resource.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    group: &'static str,
    /// Versions, preferred first; `!` in front: served only if enabled.
    versions: &'static [&'static str],
    kind: &'static str,
    plural: &'static str,
    short: &'static [&'static str],
    categories: &'static [&'static str],
    namespaced: bool,
    verbs: &'static [&'static str],
    subresources: &'static [Sub],
    /// Collection of another resource that holds the objects.
    stored_with: Option<(&'static str, &'static str)>,
    storage_version: Option<&'static str>,
    /// `(version, deprecated in, removed in)`.
    deprecated: &'static [(&'static str, &'static str, &'static str)],
}

/// A subresource: name, kind (empty: the resource's), its group and version (empty: the resource's), verbs.
type Sub = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
);

const ALL: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];
const NO_DELETE_ALL: &[&str] = &[
    "create", "delete", "get", "list", "patch", "update", "watch",
];
const CREATE: &[&str] = &["create"];
const READ: &[&str] = &["get", "list"];
const RW: &[&str] = &["get", "patch", "update"];
const PROXY: &[&str] = &["create", "delete", "get", "patch", "update"];
const CONNECT: &[&str] = &["create", "get"];
const UPDATE: &[&str] = &["update"];
const GET: &[&str] = &["get"];

const STATUS: Sub = ("status", "", "", "", RW);
const SCALE: Sub = ("scale", "Scale", "autoscaling", "v1", RW);

const BASE: Row = Row {
    group: "",
    versions: &["v1"],
    kind: "",
    plural: "",
    short: &[],
    categories: &[],
    namespaced: true,
    verbs: ALL,
    subresources: &[],
    stored_with: None,
    storage_version: None,
    deprecated: &[],
};
const CLUSTER: Row = Row {
    namespaced: false,
    ..BASE
};
const ADMISSION: Row = Row {
    group: "admissionregistration.k8s.io",
    categories: &["api-extensions"],
    ..CLUSTER
};
const APPS: Row = Row {
    group: "apps",
    categories: &["all"],
    ..BASE
};
const BATCH: Row = Row {
    group: "batch",
    categories: &["all"],
    subresources: &[STATUS],
    ..BASE
};
const AUTHORIZATION: Row = Row {
    group: "authorization.k8s.io",
    verbs: CREATE,
    ..CLUSTER
};
const AUTHENTICATION: Row = Row {
    group: "authentication.k8s.io",
    verbs: CREATE,
    ..CLUSTER
};
const FLOW: Row = Row {
    group: "flowcontrol.apiserver.k8s.io",
    subresources: &[STATUS],
    ..CLUSTER
};
const NETWORKING: Row = Row {
    group: "networking.k8s.io",
    ..BASE
};
const RBAC: Row = Row {
    group: "rbac.authorization.k8s.io",
    ..BASE
};
const STORAGE: Row = Row {
    group: "storage.k8s.io",
    ..CLUSTER
};
const RESOURCE: Row = Row {
    group: "resource.k8s.io",
    versions: &["v1", "!v1beta2", "!v1beta1"],
    deprecated: &[("v1beta1", "v1.35", "v1.38"), ("v1beta2", "v1.36", "v1.39")],
    ..BASE
};

/// All rows.
pub fn all() -> impl Iterator<Item = &'static Row> {
    let tables = [core::ROWS, workloads::ROWS, control::ROWS];
    tables.into_iter().flatten()
}

/// A group of a built-in resource.
pub(super) fn is_group(name: &str) -> bool {
    all().any(|row| row.group == name)
}

impl Row {
    /// The resource with the versions that the configuration selects.
    pub fn resource(&self, config: &RuntimeConfig, release: Release) -> Resource {
        let owned = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        let versions: Vec<Version> = self
            .versions
            .iter()
            .map(|name| {
                let (name, default) = match name.strip_prefix('!') {
                    Some(name) => (name, false),
                    None => (*name, true),
                };
                Version {
                    name: name.to_owned(),
                    served: config.serves(self.group, name, default),
                    internal: false,
                    deprecation: self.deprecation(name),
                }
            })
            .collect();
        let (group, plural) = self.stored_with.unwrap_or((self.group, self.plural));
        Resource {
            group: self.group.to_owned(),
            storage_version: self.storage_version.map_or_else(
                || {
                    versions
                        .first()
                        .map_or_else(String::new, |it| it.name.clone())
                },
                str::to_owned,
            ),
            versions,
            kind: self.kind.to_owned(),
            list_kind: format!("{}List", self.kind),
            plural: self.plural.to_owned(),
            singular: self.kind.to_lowercase(),
            short_names: owned(self.short),
            categories: owned(self.categories),
            namespaced: self.namespaced,
            verbs: owned(self.verbs),
            subresources: self
                .subresources
                .iter()
                .map(|(name, kind, group, version, verbs)| Subresource {
                    name: (*name).to_owned(),
                    kind: if kind.is_empty() { self.kind } else { kind }.to_owned(),
                    group: (*group).to_owned(),
                    version: (*version).to_owned(),
                    verbs: owned(verbs),
                })
                .collect(),
            collection: collection_name(group, plural),
            custom: None,
            release,
        }
    }

    fn deprecation(&self, version: &str) -> String {
        let Some((_, since, removed)) = self.deprecated.iter().find(|(name, ..)| *name == version)
        else {
            return String::new();
        };
        let api = if self.group.is_empty() {
            version.to_owned()
        } else {
            format!("{}/{version}", self.group)
        };
        match (*removed, self.kind) {
            ("", "Endpoints") => {
                "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
                    .to_owned()
            }
            ("", kind) => format!("{api} {kind} is deprecated in {since}+"),
            (removed, kind) => {
                format!("{api} {kind} is deprecated in {since}+, unavailable in {removed}+")
            }
        }
    }
}
