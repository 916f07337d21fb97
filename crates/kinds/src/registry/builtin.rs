//! What a built-in kind states of itself.

use allot_apimachinery::gvk::GroupVersion;
use allot_model::features::{Feature, Release};

use super::{Resource, Rules, RuntimeConfig, Subresource, Version, collection_name};

/// A built-in kind: what discovery shows of it, and its rules.
///
/// Each is a static in a file below `builtin`, which states what differs from [`BASE`] or from what its group has in
/// common.
#[derive(Debug, Clone, Copy)]
pub struct Builtin {
    /// API group.
    pub group: &'static str,
    /// Versions, preferred first; `!` in front: served only if enabled.
    pub versions: &'static [&'static str],
    /// The first release that has a version, for versions that are newer than the oldest release.
    pub since: &'static [(&'static str, u8)],
    /// A version that is stored up to and including a release, and that release. Otherwise the first version is: a new version
    /// is stored one release later than it is served, so that the release before can read what is stored.
    pub stored_until: Option<(&'static str, u8)>,
    /// The feature without which no version is served, whatever is enabled.
    pub gate: Option<Feature>,
    /// Kind of an object.
    pub kind: &'static str,
    /// Plural name, as in paths.
    pub plural: &'static str,
    /// Short names for the command line.
    pub short: &'static [&'static str],
    /// Categories, groups of resources for kubectl: `kubectl get all` lists those in `all`.
    pub categories: &'static [&'static str],
    /// Objects live in namespaces.
    pub namespaced: bool,
    /// Verbs in alphabetical order.
    pub verbs: &'static [&'static str],
    /// What the paths below an object lead to.
    pub subresources: &'static [Sub],
    /// Group and plural of another resource whose collection holds the objects.
    pub stored_with: Option<(&'static str, &'static str)>,
    /// What warnings say about a deprecated version.
    pub deprecated: &'static [Deprecated],
    /// What differs from kind to kind when objects are written and read.
    pub rules: Rules,
}

/// A subresource: name, kind (empty: the resource's), its group and version (empty: the resource's), verbs.
pub type Sub = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
);

/// A deprecated version: its name, the release that deprecates it, the one that removes it, and what to use in place of it;
/// the last two can be empty.
pub type Deprecated = (&'static str, &'static str, &'static str, &'static str);

/// All verbs.
pub const ALL: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];
/// All verbs but `deletecollection`.
pub const NO_DELETE_ALL: &[&str] = &[
    "create", "delete", "get", "list", "patch", "update", "watch",
];
/// Verbs of a resource that is computed or carried out, and not stored, such as SubjectAccessReview.
pub const CREATE: &[&str] = &["create"];
/// Verbs of a read-only resource.
pub const READ: &[&str] = &["get", "list"];
/// Verbs of a part of an object.
pub const RW: &[&str] = &["get", "patch", "update"];
/// Verbs of a proxy.
pub const PROXY: &[&str] = &["create", "delete", "get", "patch", "update"];
/// Verbs of a connection.
pub const CONNECT: &[&str] = &["create", "get"];
/// The verb of a part that is only written.
pub const UPDATE: &[&str] = &["update"];
/// The verb of a part that is only read.
pub const GET: &[&str] = &["get"];

/// The status subresource.
pub const STATUS: Sub = ("status", "", "", "", RW);
/// The scale subresource.
pub const SCALE: Sub = ("scale", "Scale", "autoscaling", "v1", RW);

/// What most namespaced kinds of the core group have in common.
pub const BASE: Builtin = Builtin {
    group: "",
    versions: &["v1"],
    since: &[],
    stored_until: None,
    gate: None,
    kind: "",
    plural: "",
    short: &[],
    categories: &[],
    namespaced: true,
    verbs: ALL,
    subresources: &[],
    stored_with: None,
    deprecated: &[],
    rules: Rules::DEFAULT,
};
/// The same for kinds without namespaces.
pub const CLUSTER: Builtin = Builtin {
    namespaced: false,
    ..BASE
};
impl Builtin {
    /// The resource with the versions that the release has and of which the configuration selects some to be served.
    pub fn resource(&'static self, config: &RuntimeConfig, release: Release) -> Resource {
        let owned = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        let versions: Vec<Version> = self
            .versions
            .iter()
            .map(|name| match name.strip_prefix('!') {
                Some(name) => (name, false),
                None => (*name, true),
            })
            .filter(|(name, _)| self.is_in(name, release))
            .map(|(name, default)| Version {
                name: name.to_owned(),
                served: config.serves(self.group, name, default),
                internal: false,
                deprecation: self.deprecation(name),
                removed: self.removed(name),
            })
            .collect();
        let stored = match self.stored_until {
            Some((name, last)) if release <= Release::new(last) && self.is_in(name, release) => {
                Some(name.to_owned())
            }
            _ => versions.first().map(|it| it.name.clone()),
        };
        let (group, plural) = self.stored_as();
        Resource {
            group: self.group.to_owned(),
            storage_version: stored.unwrap_or_default(),
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
            rules: &self.rules,
            release,
        }
    }

    /// Group and plural of the resource whose collection holds the objects.
    pub fn stored_as(&self) -> (&'static str, &'static str) {
        self.stored_with.unwrap_or((self.group, self.plural))
    }

    fn is_in(&self, version: &str, release: Release) -> bool {
        let mut since = self.since.iter();
        since.all(|(name, first)| *name != version || release >= Release::new(*first))
    }

    /// The release that no longer has a deprecated version.
    fn removed(&self, version: &str) -> String {
        let mut deprecated = self.deprecated.iter();
        let found = deprecated.find(|(name, ..)| *name == version);
        let removed = found.map_or("", |(_, _, removed, _)| *removed);
        removed.trim_start_matches('v').to_owned()
    }

    fn deprecation(&self, version: &str) -> String {
        let mut deprecated = self.deprecated.iter();
        let Some((_, since, removed, replacement)) = deprecated.find(|(name, ..)| *name == version)
        else {
            return String::new();
        };
        let api = GroupVersion::new(self.group, version);
        let kind = self.kind;
        let end = match *removed {
            "" => String::new(),
            removed => format!(", unavailable in {removed}+"),
        };
        let hint = match *replacement {
            "" => String::new(),
            other => format!("; use {other}"),
        };
        format!("{api} {kind} is deprecated in {since}+{end}{hint}")
    }
}
