//! Kinds and versions of the `resource.k8s.io` group.

use std::fmt;
use std::str::FromStr;

/// The API group all kinds of this crate belong to.
pub const GROUP: &str = "resource.k8s.io";

/// A kind of `resource.k8s.io` as Kubernetes 1.37 knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A named selection of devices that requests refer to.
    DeviceClass,
    /// A request for devices together with its allocation.
    ResourceClaim,
    /// The template from which one claim per pod is generated.
    ResourceClaimTemplate,
    /// Devices published by a driver.
    ResourceSlice,
    /// A taint that an administrator puts on devices.
    DeviceTaintRule,
    /// A one-shot question for the state of pools.
    ResourcePoolStatusRequest,
}

impl Kind {
    /// All kinds, in the order in which discovery documents list them elsewhere in this project.
    pub const ALL: [Kind; 6] = [
        Kind::DeviceClass,
        Kind::ResourceClaim,
        Kind::ResourceClaimTemplate,
        Kind::ResourceSlice,
        Kind::DeviceTaintRule,
        Kind::ResourcePoolStatusRequest,
    ];

    /// The kind's name in `kind:`.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::DeviceClass => "DeviceClass",
            Kind::ResourceClaim => "ResourceClaim",
            Kind::ResourceClaimTemplate => "ResourceClaimTemplate",
            Kind::ResourceSlice => "ResourceSlice",
            Kind::DeviceTaintRule => "DeviceTaintRule",
            Kind::ResourcePoolStatusRequest => "ResourcePoolStatusRequest",
        }
    }

    /// The resource's name in URLs.
    pub const fn plural(self) -> &'static str {
        match self {
            Kind::DeviceClass => "deviceclasses",
            Kind::ResourceClaim => "resourceclaims",
            Kind::ResourceClaimTemplate => "resourceclaimtemplates",
            Kind::ResourceSlice => "resourceslices",
            Kind::DeviceTaintRule => "devicetaintrules",
            Kind::ResourcePoolStatusRequest => "resourcepoolstatusrequests",
        }
    }

    /// Finds a kind by its name.
    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Finds a kind by its name in URLs.
    pub fn from_plural(plural: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.plural() == plural)
    }

    /// Whether objects live in a namespace.
    pub const fn namespaced(self) -> bool {
        matches!(self, Kind::ResourceClaim | Kind::ResourceClaimTemplate)
    }

    /// Whether there is a `/status` subresource.
    pub const fn has_status(self) -> bool {
        matches!(
            self,
            Kind::ResourceClaim | Kind::DeviceTaintRule | Kind::ResourcePoolStatusRequest
        )
    }

    /// The versions in which the newest release can serve the kind, preferred one first.
    pub const fn versions(self) -> &'static [Version] {
        match self {
            Kind::DeviceTaintRule => &[Version::V1, Version::V1Beta2, Version::V1Alpha3],
            Kind::ResourcePoolStatusRequest => &[Version::V1Alpha3],
            _ => &[Version::V1, Version::V1Beta2, Version::V1Beta1],
        }
    }

    /// The version in which the kind is stored: v1, except for the two kinds that upstream pins to v1alpha3.
    pub const fn storage_version(self) -> Version {
        match self {
            Kind::DeviceTaintRule | Kind::ResourcePoolStatusRequest => Version::V1Alpha3,
            _ => Version::V1,
        }
    }

    /// The version whose form all functions of this crate work on, except those that take a version.
    ///
    /// It is the storage version: a stored object needs no conversion before it is validated or shown.
    pub const fn hub(self) -> Version {
        self.storage_version()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A version of the group, newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// Stable since 1.34; the hub.
    V1,
    /// Same structure as v1.
    V1Beta2,
    /// Flat device requests and `basic` devices.
    V1Beta1,
    /// Only the kinds that are still alpha.
    V1Alpha3,
}

impl Version {
    /// All versions, newest first: the group's priority list.
    pub const ALL: [Version; 4] = [
        Version::V1,
        Version::V1Beta2,
        Version::V1Beta1,
        Version::V1Alpha3,
    ];

    /// The version without its group, as in URLs.
    pub const fn name(self) -> &'static str {
        match self {
            Version::V1 => "v1",
            Version::V1Beta2 => "v1beta2",
            Version::V1Beta1 => "v1beta1",
            Version::V1Alpha3 => "v1alpha3",
        }
    }

    /// The value of `apiVersion`.
    pub const fn api_version(self) -> &'static str {
        match self {
            Version::V1 => "resource.k8s.io/v1",
            Version::V1Beta2 => "resource.k8s.io/v1beta2",
            Version::V1Beta1 => "resource.k8s.io/v1beta1",
            Version::V1Alpha3 => "resource.k8s.io/v1alpha3",
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A version that this group does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a version of resource.k8s.io")]
pub struct UnknownVersion(pub String);

impl FromStr for Version {
    type Err = UnknownVersion;

    /// Accepts `v1` as well as `resource.k8s.io/v1`.
    fn from_str(text: &str) -> Result<Version, UnknownVersion> {
        Version::ALL
            .into_iter()
            .find(|version| version.name() == text || version.api_version() == text)
            .ok_or_else(|| UnknownVersion(text.to_owned()))
    }
}
