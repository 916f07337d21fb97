//! Facts about ResourceClaims that several components need, each in one place, and changes of single fields.
//!
//! It provides what the Go package `k8s.io/dynamic-resource-allocation/resourceclaim` does in upstream: the name of the
//! claim for an entry of a pod, whether a claim was created for a pod, and its consumers. It must not depend on its
//! callers: schedulers, controllers, node agents and drivers use it alike.
//!
//! [`change()`] edits one field of a stored claim and keeps every other byte as it was; see [`mod@change`].
//!
//! ```
//! # use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
//! let entry = PodResourceClaim {
//!     name: "gpu".into(),
//!     resource_claim_name: Some("shared".into()),
//!     ..PodResourceClaim::default()
//! };
//! let pod = Pod::default();
//! let name = allot_resourceclaim::claim_name(&pod, &entry);
//! assert_eq!(name, Ok(Some("shared")));
//! ```

#![forbid(unsafe_code)]
// Time, randomness and files are inputs; see clippy.toml.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod allocation;
pub mod change;
mod consumer;
mod pod;

pub use allot_apimachinery::well_known::EXTENDED_RESOURCE_CLAIM_ANNOTATION;

pub use allocation::{allocation, devices_by_class, same_devices};
pub use change::{Change, Target, change};
pub use consumer::{
    POD_GROUP_API_GROUP, POD_GROUP_RESOURCE, consumers, is_consumer, is_pod_group, is_reserved_for,
};
pub use pod::{
    LAST_RELEASE_WITH_DETERMINISTIC_NAMES, UnknownName, claim_name, claim_status,
    extended_resource_claim_name, is_for_pod,
};

/// The finalizer that keeps an allocated claim from being deleted.
pub const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// Annotation of a claim that was created from a template: the entry of the pod's `spec.resourceClaims` that it is for.
pub const POD_CLAIM_NAME_ANNOTATION: &str = "resource.kubernetes.io/pod-claim-name";
