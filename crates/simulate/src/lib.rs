//! What a cluster would do with a workload: the scheduler's own core in virtual time, without an API server.
//!
//! [`Simulation`] owns a [`Core`](allot_scheduler::core::Core) and plays everything around it in memory: the API server
//! (objects, versions, identities), the claim controller (claims from templates, release), the kubelet (pods run for
//! their time and end) and the drivers (devices are ready at once). Time jumps from event to event, so that days take
//! seconds. What the scheduler decides is what the scheduler of a cluster decides: it is the same code.
//!
//! - [`Workload`] is what arrives: manifests, or a [`trace`].
//! - [`Report`] is what came of it; [`compare`] sets two of them side by side.
//! - [`fleet`] changes the nodes before the start.
//!
//! Invariants: no clock, no randomness that a seed does not decide, no I/O; the same input gives the same bytes.

#![forbid(unsafe_code)]
// Time, randomness and files are inputs; see clippy.toml.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod api;
mod carry_out;
mod claims;
pub mod compare;
mod event_queue;
pub mod fleet;
mod history;
mod kubelet;
mod measure;
mod objects;
pub mod prepare;
pub mod random;
mod report;
mod show;
mod simulation;
mod text;
pub mod time;
pub mod trace;
mod volumes;
mod workload;

pub use history::{End, Placement, Record};
pub use measure::Sample;
pub use report::{Pod as PodReport, Report, Summary};
pub use simulation::{Options, Simulation};
pub use workload::{Arrival, Draft, Order, Workload};
