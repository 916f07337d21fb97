//! Structured device allocation: snapshot, claims and node in; allocation or reasons out.
//!
//! This crate decides which devices a pod gets (Kubernetes Dynamic Resource Allocation). [`Cluster`] is the model of
//! what there is and what is in use, [`Claims`] are the claims of a pod, and an [`Allocator`] finds devices for them on a
//! node. The result is that of Kubernetes 1.36, device for device; see `docs/allocator.md` for the order and for how the
//! search gets there with less work.
//!
//! Invariants: the same input gives the same result; no I/O, no clock, no randomness (share IDs come from the caller); an
//! attempt does no work that grows with the cluster; "does not fit" is only said when it was proven.
//!
//! The crate knows nothing of pods, scheduling, API servers or drivers.
//!
//! ```
//! use allot_allocator::{Allocator, Claims, Cluster, Features, Limits, Node, Outcome, SelectorCache};
//! use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
//! # fn run(slices: Vec<ResourceSlice>, classes: Vec<DeviceClass>, claim: ResourceClaim) {
//! let features = Features::default();
//! let mut cluster = Cluster::new(features);
//! for slice in &slices {
//!     cluster.apply(slice);
//! }
//! let claims = Claims::prepare(&features, &SelectorCache::new(), &classes, [&claim]);
//! let node = Node::new("worker-1", [("zone", "a")]);
//! if let Outcome::Allocated(found) = Allocator::new().allocate(&cluster, &node, &claims, &Limits::default()) {
//!     let results = found.results(&claims, &mut || "c0ffee00-0000-4000-8000-000000000000".into());
//! }
//! # }
//! # run(vec![], vec![], ResourceClaim::default());
//! ```

#![forbid(unsafe_code)]

mod allocation;
mod allocator;
mod amount;
mod attempt;
mod capacity;
mod claims;
mod cluster;
mod device;
pub mod explain;
mod features;
mod node;
mod observer;
mod pool;
pub mod problem;
mod search;
mod selector;
mod slice;
mod taint;

pub use allocation::{AllocatedDevice, Allocation};
pub use allocator::{Allocator, Error, ErrorKind, Limits, Outcome, Policy};
pub use claims::{Claims, Classes, MAX_RESULTS};
pub use cluster::{Cluster, Held, HeldKind, Holder};
pub use features::Features;
pub use node::Node;
pub use selector::SelectorCache;
pub use taint::TaintRule;
