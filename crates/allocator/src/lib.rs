//! Structured device allocation: snapshot, claims and node in; allocation or reasons out.
//!
//! This crate decides which devices a pod gets (Kubernetes Dynamic Resource Allocation). [`Cluster`] is the model of
//! devices and allocations, [`Claims`] are the claims of a pod, and an [`Allocator`] allocates devices for them on a
//! node. The result is that of Kubernetes 1.36, device for device; see `docs/allocator.md` for the order and for how
//! the search needs less work.
//!
//! Invariants: the same input gives the same result; no I/O, no clock, no randomness (share IDs come from the caller);
//! the work of an attempt does not grow with the cluster; "does not fit" is only returned if it was proven.
//!
//! The crate does not depend on pods, scheduling, API servers or drivers.
//!
//! ```
//! use allot_allocator::{Allocator, Claims, Cluster, Features, Limits, Node, Outcome, SelectorCache};
//! use serde_json::{from_value, json};
//!
//! let mut cluster = Cluster::new(Features::default());
//! cluster.apply(&from_value(json!({"metadata": {"name": "s"}, "spec": {
//!     "driver": "gpu.example.com", "nodeName": "worker-1", "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
//!     "pool": {"name": "worker-1", "generation": 1, "resourceSliceCount": 1}}}))?);
//! let class = from_value(json!({"metadata": {"name": "gpu"}, "spec": {}}))?;
//! let claim = from_value(json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [
//!     {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2}}]}}}))?;
//! let claims = Claims::prepare(cluster.features(), &SelectorCache::new(), &vec![class], [&claim]);
//! let node = Node::new("worker-1", [("zone", "a")]);
//! match Allocator::new().allocate(&cluster, &node, &claims, &Limits::default()) {
//!     Outcome::Allocated(found) => assert_eq!(found.devices(&claims).map(|d| d.device).collect::<Vec<_>>(), ["gpu-0", "gpu-1"]),
//!     other => panic!("{other:?}"),
//! }
//! # Ok::<(), serde_json::Error>(())
//! ```

#![forbid(unsafe_code)]
// Time, randomness and files are inputs; see clippy.toml.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod allocation;
mod allocator;
mod amount;
mod attempt;
mod boxed;
mod capacity;
mod claims;
mod cluster;
mod counters;
mod device;
pub mod explain;
mod features;
mod fingerprint;
pub mod free_devices;
mod holder;
mod memo;
mod next_id;
mod node;
mod observer;
mod outcome;
mod pool;
pub mod problem;
mod search;
mod selector;
mod slice;
mod taint;

pub use allocation::{AllocatedDevice, Allocation, ResultsError};
pub use allocator::Allocator;
pub use claims::{ClaimShapes, Claims, Classes, Excess, MAX_RESULTS};
pub use cluster::{
    ClassSelectors, Cluster, Conflict, CountError, DeviceCount, DeviceState, Fullness, Held,
    HeldKind, Inventoried, PoolProblem,
};
pub use features::Features;
pub use holder::Holder;
pub use memo::KnownFit;
pub use node::{Node, NodeSelectorError};
pub use outcome::{Error, ErrorKind, Limits, Outcome, Policy};
pub use selector::{SelectorCache, SelectorError};
pub use taint::TaintRule;
