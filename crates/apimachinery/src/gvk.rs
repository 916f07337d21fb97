//! Names of API groups, versions, kinds and resources.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A group and a kind, printed `Kind.group` (`Kind` in the core group).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct GroupKind {
    /// API group, empty for the core group.
    pub group: String,
    /// Kind, as in `ResourceClaim`.
    pub kind: String,
}

/// A group and a resource, printed `resource.group` (`resource` in the core group).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct GroupResource {
    /// API group, empty for the core group.
    pub group: String,
    /// Plural lower-case resource name, as in `resourceclaims`.
    pub resource: String,
}

/// A group and a version, printed as `apiVersion`: `group/version`, or `v1` for the core group.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct GroupVersion {
    /// API group, empty for the core group.
    pub group: String,
    /// Version, as in `v1beta1`.
    pub version: String,
}

/// A group, version and kind, printed `group/version, Kind=kind`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct GroupVersionKind {
    /// API group, empty for the core group.
    pub group: String,
    /// Version, as in `v1`.
    pub version: String,
    /// Kind, as in `ResourceClaim`.
    pub kind: String,
}

/// A group, version and resource, printed `group/version, Resource=resource`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct GroupVersionResource {
    /// API group, empty for the core group.
    pub group: String,
    /// Version, as in `v1`.
    pub version: String,
    /// Plural lower-case resource name.
    pub resource: String,
}

impl GroupKind {
    /// Joins the parts; an empty group is the core group.
    pub fn new(group: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            kind: kind.into(),
        }
    }
}

impl GroupResource {
    /// Joins the parts; an empty group is the core group, and the resource is in the plural.
    pub fn new(group: impl Into<String>, resource: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            resource: resource.into(),
        }
    }

    /// Whether neither part is set.
    pub fn is_empty(&self) -> bool {
        self.group.is_empty() && self.resource.is_empty()
    }
}

/// An `apiVersion` that is not of the form `version` or `group/version`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unexpected GroupVersion string: {0}")]
pub struct ParseGroupVersionError(String);

impl GroupVersion {
    /// Joins the parts; an empty group is the core group.
    pub fn new(group: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
        }
    }

    /// Reads an `apiVersion`, as upstream's `ParseGroupVersion`.
    ///
    /// # Errors
    /// There is more than one slash.
    pub fn parse(api_version: &str) -> Result<Self, ParseGroupVersionError> {
        match api_version.matches('/').count() {
            0 => Ok(Self::new("", api_version)),
            1 => {
                let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
                Ok(Self::new(group, version))
            }
            _ => Err(ParseGroupVersionError(api_version.to_owned())),
        }
    }

    /// Adds a kind, as in the `kind` of an object.
    pub fn with_kind(&self, kind: impl Into<String>) -> GroupVersionKind {
        GroupVersionKind {
            group: self.group.clone(),
            version: self.version.clone(),
            kind: kind.into(),
        }
    }

    /// Adds a resource: the plural name, as in paths.
    pub fn with_resource(&self, resource: impl Into<String>) -> GroupVersionResource {
        GroupVersionResource {
            group: self.group.clone(),
            version: self.version.clone(),
            resource: resource.into(),
        }
    }
}

impl GroupVersionKind {
    /// Joins the parts; an empty group is the core group.
    pub fn new(
        group: impl Into<String>,
        version: impl Into<String>,
        kind: impl Into<String>,
    ) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
        }
    }

    /// Group and kind without the version.
    pub fn group_kind(&self) -> GroupKind {
        GroupKind::new(self.group.clone(), self.kind.clone())
    }

    /// Group and version without the kind.
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion::new(self.group.clone(), self.version.clone())
    }

    /// The `apiVersion` of objects of this kind.
    pub fn api_version(&self) -> String {
        self.group_version().to_string()
    }
}

impl GroupVersionResource {
    /// Joins the parts; an empty group is the core group, and the resource is in the plural.
    pub fn new(
        group: impl Into<String>,
        version: impl Into<String>,
        resource: impl Into<String>,
    ) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
        }
    }

    /// Group and resource without the version.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(self.group.clone(), self.resource.clone())
    }

    /// Group and version without the resource.
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion::new(self.group.clone(), self.version.clone())
    }
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        dotted(f, &self.kind, &self.group)
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        dotted(f, &self.resource, &self.group)
    }
}

impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.version)
        } else {
            write!(f, "{}/{}", self.group, self.version)
        }
    }
}

impl fmt::Display for GroupVersionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

impl fmt::Display for GroupVersionResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{}, Resource={}",
            self.group, self.version, self.resource
        )
    }
}

fn dotted(f: &mut fmt::Formatter<'_>, name: &str, group: &str) -> fmt::Result {
    if group.is_empty() {
        f.write_str(name)
    } else {
        write!(f, "{name}.{group}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_like_upstream() {
        assert_eq!(
            GroupResource::new("resource.k8s.io", "resourceclaims").to_string(),
            "resourceclaims.resource.k8s.io"
        );
        assert_eq!(GroupKind::new("", "Pod").to_string(), "Pod");
        assert_eq!(GroupVersion::parse("v1").unwrap().to_string(), "v1");
        assert_eq!(
            GroupVersionKind::new("apps", "v1", "Deployment").to_string(),
            "apps/v1, Kind=Deployment"
        );
        assert!(GroupVersion::parse("a/b/c").is_err());
    }
}
