//! Which resources there are.
//!
//! Built-in kinds are listed in the module `builtin` at the root; custom resources are added at run time as the same type.
//! The request path, discovery and authorization are all driven by it.

use std::collections::BTreeMap;
use std::sync::Arc;

use allot_apimachinery::gvk::{GroupKind, GroupResource, GroupVersion};
use allot_model::features::Release;

mod builtin;
mod custom;
mod priority;
mod rules;

pub use builtin::{
    ALL, BASE, Builtin, CLUSTER, CONNECT, CREATE, Deprecated, GET, NO_DELETE_ALL, PROXY, READ, RW,
    SCALE, STATUS, Sub, UPDATE,
};
pub use custom::of_definition;
pub use priority::{groups, is_builtin_group, version_priority, versions};
pub use rules::{
    ALL_METADATA, Check, CheckChange, ComputedField, Connect, Create, Generation, Layout,
    MetadataErrors, Review, Row, Rules, Steps, StoredForm, UnsupportedField, anything_changed,
};

/// One served version of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Name, as in `v1beta1`.
    pub name: String,
    /// Reachable through the API.
    pub served: bool,
    /// Reachable for this cluster's own components in process, whether served to others or not.
    pub internal: bool,
    /// A `Warning` that every request through this version gets, empty for none.
    pub deprecation: String,
    /// The release without it, as in `1.37`, of a deprecated version whose end is known; else empty.
    pub removed: String,
}

impl Version {
    /// Reachable for a client, which may be a component of this process.
    pub fn open_to(&self, in_process: bool) -> bool {
        self.served || (in_process && self.internal)
    }
}

/// A subresource of a built-in kind, such as `status`, with the verbs that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subresource {
    /// `status`, `scale`, ….
    pub name: String,
    /// Group of the kind, if it differs from the resource's.
    pub group: String,
    /// Version of the kind, if it differs.
    pub version: String,
    /// The kind it speaks.
    pub kind: String,
    /// Verbs in alphabetical order.
    pub verbs: Vec<String>,
}

/// A resource that the server has, built-in or by a CustomResourceDefinition: its names, versions, verbs and rules.
#[derive(Debug, Clone)]
pub struct Resource {
    /// API group.
    pub group: String,
    /// All versions, the preferred one first.
    pub versions: Vec<Version>,
    /// The version that is stored.
    pub storage_version: String,
    /// Kind of an object.
    pub kind: String,
    /// Kind of a list of objects.
    pub list_kind: String,
    /// Plural name, as in paths.
    pub plural: String,
    /// Singular name.
    pub singular: String,
    /// Short names for the command line.
    pub short_names: Vec<String>,
    /// Categories, groups of resources for kubectl: `kubectl get all` lists those in `all`.
    pub categories: Vec<String>,
    /// Objects live in namespaces.
    pub namespaced: bool,
    /// Verbs in alphabetical order.
    pub verbs: Vec<String>,
    /// What the paths below an object lead to.
    pub subresources: Vec<Subresource>,
    /// The collection in the store; two resources may share it (events).
    pub collection: Arc<str>,
    /// The definition behind a custom resource.
    pub custom: Option<Arc<crate::custom::CustomResource>>,
    /// What differs from kind to kind when objects are written and read.
    pub rules: &'static Rules,
    /// The release whose API serves the resource.
    pub release: Release,
}

impl Resource {
    /// Group and plural name.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(self.group.as_str(), self.plural.as_str())
    }

    /// The kind for error texts; for Events that of the core group, whatever group the request named.
    pub fn group_kind(&self) -> GroupKind {
        // Events of both groups are one kind.
        if self.group == "events.k8s.io" {
            return GroupKind::new("", self.kind.as_str());
        }
        GroupKind::new(self.group.as_str(), self.kind.as_str())
    }

    /// `plural` or `plural.group`.
    pub fn qualified(&self) -> String {
        self.group_resource().to_string()
    }

    /// The `apiVersion` of objects in a version: `group/version`, or the version alone in the core group.
    pub fn api_version(&self, version: &str) -> String {
        GroupVersion::new(self.group.as_str(), version).to_string()
    }

    /// The kind in an invalid object, in the group of the resource.
    pub fn claimed_kind(&self, object: &serde_json::Value) -> GroupKind {
        match crate::object::text(object, &["kind"]) {
            kind if self.custom.is_some() && !kind.is_empty() => {
                GroupKind::new(self.group.as_str(), kind)
            }
            _ => self.group_kind(),
        }
    }

    /// Whether a webhook converts the objects of this resource.
    pub fn is_converted_by_webhook(&self) -> bool {
        self.custom
            .as_ref()
            .is_some_and(|custom| custom.converter().is_some())
    }

    /// A subresource by name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }

    /// The subresources that a version has: those of custom resources differ between versions.
    pub fn subresources_of<'a>(
        &'a self,
        version: &'a str,
    ) -> impl Iterator<Item = &'a Subresource> {
        self.subresources
            .iter()
            .filter(move |sub| match &self.custom {
                Some(custom) if sub.name == "scale" => custom.scale(version).is_some(),
                Some(custom) => custom.has_status(version),
                None => true,
            })
    }

    /// A version by name.
    pub fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// The key of an object in its collection.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced {
            format!("{namespace}/{name}")
        } else {
            name.to_owned()
        }
    }

    /// The built-in type in a version.
    pub fn schema(&self, version: &str) -> Option<&'static allot_schema::types::Struct> {
        match self.custom {
            Some(_) => None,
            None => allot_schema::types::lookup(&self.group, version, &self.kind),
        }
    }

    /// It is the resource `plural` of `group`.
    pub fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }
}

/// All resources at one moment.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    resources: BTreeMap<(String, String), Arc<Resource>>,
    kinds: BTreeMap<(String, String), Arc<Resource>>,
}

impl Registry {
    /// The registry of these resources; later ones with the same group and plural replace earlier ones.
    pub fn new(resources: impl IntoIterator<Item = Resource>) -> Self {
        let mut registry = Registry::default();
        for resource in resources {
            registry.insert(resource);
        }
        registry
    }

    /// Adds or replaces a resource.
    pub fn insert(&mut self, resource: Resource) {
        let resource = Arc::new(resource);
        self.kinds.insert(
            (resource.group.clone(), resource.kind.clone()),
            resource.clone(),
        );
        self.resources
            .insert((resource.group.clone(), resource.plural.clone()), resource);
    }

    /// The group and plural belong to a built-in kind.
    pub fn is_builtin(&self, group: &str, plural: &str) -> bool {
        self.get(group, plural)
            .is_some_and(|resource| resource.custom.is_none())
    }

    /// Adds the resource of a definition. Built-in kinds take precedence: a definition gets none of their names, and is
    /// not served in the versions of a group that they have, in which upstream serves nothing else.
    pub fn insert_custom(&mut self, mut resource: Resource) {
        let (group, kind) = (resource.group.clone(), resource.kind.clone());
        if self.is_builtin(&group, &resource.plural) {
            return;
        }
        for version in &mut resource.versions {
            let serves = |it: &Resource| it.version(&version.name).is_some_and(|it| it.served);
            if self
                .of_group(&group)
                .any(|it| it.custom.is_none() && serves(it))
            {
                version.served = false;
            }
        }
        if !resource.versions.iter().any(|version| version.served) {
            return;
        }
        let known = self.by_kind(&group, &kind).cloned();
        self.insert(resource);
        if let Some(known) = known.filter(|known| known.custom.is_none()) {
            self.kinds.insert((group, kind), known);
        }
    }

    /// Takes a resource out.
    pub fn remove(&mut self, group: &str, plural: &str) {
        if let Some(resource) = self
            .resources
            .remove(&(group.to_owned(), plural.to_owned()))
        {
            let kind = (resource.group.clone(), resource.kind.clone());
            if self
                .kinds
                .get(&kind)
                .is_some_and(|known| known.plural == plural)
            {
                self.kinds.remove(&kind);
            }
        }
    }

    /// A resource in any version.
    pub fn get(&self, group: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.resources.get(&(group.to_owned(), plural.to_owned()))
    }

    /// A resource in a version in which it is reachable for a client, which may be a component in this process.
    pub fn served(
        &self,
        in_process: bool,
        group: &str,
        version: &str,
        plural: &str,
    ) -> Option<&Arc<Resource>> {
        self.get(group, plural).filter(|resource| {
            resource
                .version(version)
                .is_some_and(|version| version.open_to(in_process))
        })
    }

    /// A resource by kind.
    pub fn by_kind(&self, group: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.kinds.get(&(group.to_owned(), kind.to_owned()))
    }

    /// All resources in the order of group and plural.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.values()
    }

    /// The resources of a group in the order of their plurals. What is asked for each of many groups looks at no others.
    pub fn of_group<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a Arc<Resource>> {
        self.resources
            .range((group.to_owned(), String::new())..)
            .map(|(_, resource)| resource)
            .take_while(move |resource| resource.group == group)
    }

    /// The group and version has a resource that the client can reach; the client may be a component of this process.
    pub fn has_version(&self, in_process: bool, group: &str, version: &str) -> bool {
        self.of_group(group).any(|resource| {
            resource
                .version(version)
                .is_some_and(|it| it.open_to(in_process))
        })
    }
}

/// Groups of kube-apiserver of which this server serves no kind; naming them is no error.
const UNSERVED: [&str; 4] = [
    "extensions",
    "imagepolicy.k8s.io",
    "internal.apiserver.k8s.io",
    "storagemigration.k8s.io",
];

/// Why a text is not a value for `--runtime-config`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeConfigError {
    /// An item has another value than true or false.
    #[error("{0}: the value must be true or false")]
    Value(String),
    /// Items name groups that do not exist; upstream's text.
    #[error("unknown api groups {}", .0.join(","))]
    UnknownGroups(Vec<String>),
}

/// The versions enabled or disabled by `--runtime-config`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimeConfig(BTreeMap<String, bool>);

impl RuntimeConfig {
    /// Reads `group/version[=true|false],…`; also `api/all`, `api/beta`, `api/alpha`.
    ///
    /// ```
    /// use allot_kinds::registry::RuntimeConfig;
    ///
    /// assert!(RuntimeConfig::parse("resource.k8s.io/v1beta1=true,api/alpha=false").is_ok());
    /// let error = RuntimeConfig::parse("foo/v1").unwrap_err();
    /// assert_eq!(error.to_string(), "unknown api groups foo");
    /// ```
    ///
    /// # Errors
    /// The malformed item, or the unknown groups.
    pub fn parse(text: &str) -> Result<Self, RuntimeConfigError> {
        let mut config = BTreeMap::new();
        let mut unknown = std::collections::BTreeSet::new();
        for item in text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
        {
            let (key, value) = item.split_once('=').unwrap_or((item, "true"));
            let value = value
                .parse::<bool>()
                .map_err(|_| RuntimeConfigError::Value(item.to_owned()))?;
            match key.split_once('/') {
                Some(("api", "all" | "ga" | "beta" | "alpha")) => {}
                Some((group, _)) if !is_builtin_group(group) && !UNSERVED.contains(&group) => {
                    unknown.insert(group.to_owned());
                }
                _ => {}
            }
            config.insert(key.to_owned(), value);
        }
        if !unknown.is_empty() {
            return Err(RuntimeConfigError::UnknownGroups(Vec::from_iter(unknown)));
        }
        Ok(RuntimeConfig(config))
    }

    /// Whether a version is enabled by its name.
    pub fn names(&self, group: &str, version: &str) -> bool {
        self.0
            .get(&format!("{group}/{version}"))
            .is_some_and(|served| *served)
    }

    /// The versions that `--runtime-config` names and no resource has; the server logs a warning about them when it starts.
    ///
    /// ```
    /// use allot_kinds::builtin;
    /// use allot_kinds::registry::RuntimeConfig;
    /// use allot_model::features::Release;
    ///
    /// let config = RuntimeConfig::parse("apps/v1=true,apps/v9=true,apps/v8=false,api/all=true").unwrap();
    /// assert_eq!(config.missing(&builtin::registry(&config, Release::new(36))), ["apps/v9"]);
    /// ```
    pub fn missing(&self, registry: &Registry) -> Vec<&str> {
        let is_missing = |key: &str| {
            let (group, version) = key.split_once('/').unwrap_or(("", key));
            let has = |resource: &Arc<Resource>| {
                resource.group == group && resource.version(version).is_some()
            };
            group != "api" && !registry.iter().any(has)
        };
        let asked = self.0.iter().filter(|(_, served)| **served);
        let asked = asked.map(|(key, _)| key.as_str());
        asked.filter(|key| is_missing(key)).collect()
    }

    /// Whether a version is served, given its default.
    pub fn serves(&self, group: &str, version: &str, default: bool) -> bool {
        let exact = if group.is_empty() {
            version.to_owned()
        } else {
            format!("{group}/{version}")
        };
        let stage = if version.contains("alpha") {
            "api/alpha"
        } else if version.contains("beta") {
            "api/beta"
        } else {
            "api/ga"
        };
        [exact.as_str(), stage, "api/all"]
            .into_iter()
            .find_map(|key| self.0.get(key).copied())
            .unwrap_or(default)
    }
}

/// The store's collection of a resource.
pub fn collection_name(group: &str, plural: &str) -> Arc<str> {
    if group.is_empty() {
        plural.into()
    } else {
        format!("{group}/{plural}").into()
    }
}
