//! The kinds of dynamic resource allocation before 1.31, when drivers allocated claims.
//!
//! v1alpha1 of 1.26, v1alpha2 of 1.27 to 1.29, and v1alpha2 of 1.30 with its structured parameters. They are stored
//! unchanged: no lossless form of them exists in v1 ([`exchange`] carries what v1 cannot represent in an annotation, so
//! that a claim can still be read through either version). The functions mirror those for the current kinds; a rule
//! that depends on the release depends on the version or on which members an object has.

pub mod exchange;
pub mod objects;
mod strategy;
mod table;
mod tables;
#[cfg(test)]
mod tests;
mod validate;

use serde_json::Value;

use crate::shape;
use crate::view::{View, set};

pub use strategy::{prepare_for_create, prepare_for_status_update, prepare_for_update};
pub use table::{claim_state, columns, row};
pub use validate::{create, status_update, update};

/// The finalizer that marks claims which the scheduler of 1.30 allocated.
pub const DELETE_PROTECTION: &str = "dra.k8s.io/delete-protection";

/// A kind of v1alpha1 or v1alpha2, or one that remained in v1alpha3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A driver with default parameters, that claims refer to.
    ResourceClass,
    /// A request for one resource of a class, and its allocation.
    ResourceClaim,
    /// The template from which one claim per pod is generated.
    ResourceClaimTemplate,
    /// The negotiation about a pod's node, as 1.26 called it.
    PodScheduling,
    /// The negotiation about a pod's node.
    PodSchedulingContext,
    /// The resources that the kubelet of 1.30 published for a driver.
    ResourceSlice,
    /// Parameters of claims that the scheduler of 1.30 understands.
    ResourceClaimParameters,
    /// Parameters of classes that the scheduler of 1.30 understands.
    ResourceClassParameters,
}

impl Kind {
    /// Every classic kind, including those that only 1.30 has.
    pub const ALL: [Kind; 8] = [
        Kind::ResourceClass,
        Kind::ResourceClaim,
        Kind::ResourceClaimTemplate,
        Kind::PodScheduling,
        Kind::PodSchedulingContext,
        Kind::ResourceSlice,
        Kind::ResourceClaimParameters,
        Kind::ResourceClassParameters,
    ];

    /// The kind's name in `kind:`.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::ResourceClass => "ResourceClass",
            Kind::ResourceClaim => "ResourceClaim",
            Kind::ResourceClaimTemplate => "ResourceClaimTemplate",
            Kind::PodScheduling => "PodScheduling",
            Kind::PodSchedulingContext => "PodSchedulingContext",
            Kind::ResourceSlice => "ResourceSlice",
            Kind::ResourceClaimParameters => "ResourceClaimParameters",
            Kind::ResourceClassParameters => "ResourceClassParameters",
        }
    }

    /// The resource's name in URLs.
    pub const fn plural(self) -> &'static str {
        match self {
            Kind::ResourceClass => "resourceclasses",
            Kind::ResourceClaim => "resourceclaims",
            Kind::ResourceClaimTemplate => "resourceclaimtemplates",
            Kind::PodScheduling => "podschedulings",
            Kind::PodSchedulingContext => "podschedulingcontexts",
            Kind::ResourceSlice => "resourceslices",
            Kind::ResourceClaimParameters => "resourceclaimparameters",
            Kind::ResourceClassParameters => "resourceclassparameters",
        }
    }

    /// Finds a kind by its name in URLs.
    pub fn from_plural(plural: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.plural() == plural)
    }

    /// Finds a kind by its name.
    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether objects live in a namespace.
    pub const fn namespaced(self) -> bool {
        !matches!(self, Kind::ResourceClass | Kind::ResourceSlice)
    }

    /// Whether there is a `/status` subresource.
    pub const fn has_status(self) -> bool {
        matches!(
            self,
            Kind::ResourceClaim | Kind::PodScheduling | Kind::PodSchedulingContext
        )
    }

    /// The fields that a field selector may name.
    pub const fn selectable_fields(self) -> &'static [&'static str] {
        match self {
            Kind::ResourceSlice => &["metadata.name", "nodeName", "driverName"],
            Kind::ResourceClass => &["metadata.name"],
            _ => &["metadata.name", "metadata.namespace"],
        }
    }
}

/// The versions whose objects have the form of this module.
pub const VERSIONS: [&str; 2] = ["v1alpha2", "v1alpha1"];

/// Whether an object is in classic form, judging by its structure: kinds that share their name with a newer one have
/// other members.
pub fn is_classic(kind: Kind, value: &Value) -> bool {
    match kind {
        Kind::ResourceClaim => value.at("spec").has("resourceClassName"),
        Kind::ResourceClaimTemplate => value.at("spec").at("spec").has("resourceClassName"),
        Kind::ResourceSlice => value.has("driverName"),
        _ => true,
    }
}

/// Sets the defaults of an object: a claim waits for its first consumer.
pub fn default(kind: Kind, value: &mut Value) {
    let spec = match kind {
        Kind::ResourceClaim => value.get_mut("spec"),
        Kind::ResourceClaimTemplate => value.pointer_mut("/spec/spec"),
        _ => None,
    };
    if let Some(spec) = spec
        && spec.text("allocationMode").is_empty()
    {
        set(spec, "allocationMode", "WaitForFirstConsumer");
    }
}

/// Brings an object into the canonical form in which upstream would return it (see [`crate::convert::normalize`]).
pub fn normalize(kind: Kind, value: &mut Value) {
    shape::normalize(tables::of(kind), value);
}

/// The paths of members that the kind does not have.
pub fn unknown_fields(kind: Kind, value: &Value) -> Vec<String> {
    shape::unknown_fields(tables::of(kind), value)
}
