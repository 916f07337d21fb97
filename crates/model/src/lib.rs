//! The resource.k8s.io kinds: versions, conversion, defaults, validation and table columns.
//!
//! The API server's rules for DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice, DeviceTaintRule and
//! ResourcePoolStatusRequest, as pure functions on JSON. The hub form is v1, or v1alpha3 for the two kinds that
//! upstream stores in that version ([`Kind::hub`]).
//!
//! The way of an object through an API server:
//!
//! ```
//! use allot_model::{Kind, Version, convert, defaults, features::Features, strategy};
//! use serde_json::json;
//!
//! let mut claim = json!({
//!     "apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "n"},
//!     "spec": {"devices": {"requests": [{"name": "gpu", "deviceClassName": "gpu.example.com"}]}},
//! });
//! let now = "2026-01-02T03:04:05Z".parse().unwrap();
//! defaults::default(Kind::ResourceClaim, Version::V1Beta1, &mut claim, now);
//! let mut claim = convert::convert(Kind::ResourceClaim, Version::V1Beta1, Kind::ResourceClaim.hub(), claim).unwrap();
//! strategy::prepare_for_create(Kind::ResourceClaim, &mut claim, &Features::default());
//! convert::normalize(Kind::ResourceClaim, &mut claim);
//! assert_eq!(claim["spec"]["devices"]["requests"][0]["exactly"]["count"], 1);
//! ```
//!
//! Invariants: no I/O, no clock (the time is an argument), no global state; total on arbitrary JSON; unknown members
//! are never lost. The crate must not depend on storage, callers, or the allocator.

#![forbid(unsafe_code)]
// Time, randomness and files are inputs; see clippy.toml.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod admin;
pub mod authorize;
pub mod availability;
pub mod classic;
pub mod convert;
pub mod defaults;
pub mod features;
mod kind;
pub mod limits;
pub mod lint;
pub mod migrate;
pub mod quota;
pub mod selectable;
mod shape;
pub mod strategy;
pub mod table;
pub mod tolerations;
pub mod validate;
mod view;

pub use kind::{GROUP, Kind, UnknownVersion, Version};

/// Key of the taint on devices of a driver that is being taken out of service. `allot drain-driver` sets it, and a driver
/// that publishes its slices again keeps it.
pub const DRAINING: &str = "allot.dev/draining";
