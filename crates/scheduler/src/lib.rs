//! The scheduler: places pods on nodes and allocates devices for them.
//!
//! Observations of the API server come in through watches, decisions go out as writes. In between there is one state
//! with one owner ([`core::Core`]): queue, nodes with their pods, claims with their devices. It is a plain function of
//! its inputs, without clock and I/O. Writing ([`writer`]) is asynchronous: while the claims and the binding of one pod
//! are written, the next pods are placed, on a state in which the decision is assumed.
//!
//! Claims of another generation are left to a plugin in another crate ([`allot_framework::claim_plugin`]): with the
//! feature `classic`, which is on by default, to `allot-classic`.
//!
//! Invariants:
//! - a device is never given twice: from the decision until the written claim is seen, it is in use ([`dra::claims`]);
//! - everything is written with preconditions; losing a race leads to another attempt, never to an overwrite;
//! - the crate talks to [`kube::Client`] and does not depend on a particular API server; killed at any moment and
//!   restarted, it continues from the state of the API server.
//!
//! ```no_run
//! # async fn example(client: kube::Client) -> Result<(), allot_scheduler::Error> {
//! let config = allot_scheduler::Config::default();
//! let shutdown = tokio_util::sync::CancellationToken::new();
//! allot_scheduler::run(client, config, shutdown).await
//! # }
//! ```

#![forbid(unsafe_code)]
// Time, randomness and files are inputs; see clippy.toml.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

// First, since other modules use its table of plugins.
#[macro_use]
pub mod plugins;

pub mod actions;
pub mod attempt;
pub mod cache;
pub mod config;
pub mod core;
pub mod device_allocator;
pub mod dra;
pub mod framework;
pub mod hints;
#[allow(clippy::disallowed_methods, reason = "rate of requests")]
mod limit;
pub mod message;
pub mod metrics;
pub mod nominations;
pub mod observe;
pub mod podgroups;
pub mod preemption;
pub mod queue;
#[allow(clippy::disallowed_methods, reason = "gives the core its time")]
mod run;
pub mod sources;
pub mod status;
pub mod storage;
pub mod taint_rules;
pub mod watched;
#[allow(clippy::disallowed_methods, reason = "times and names of events")]
pub mod writer;

pub use allot_framework::{assume_cache, node, pod, resources, selectors, version};
pub use config::Config;
pub use metrics::Metrics;
pub use run::{Error, run, run_with_metrics};
