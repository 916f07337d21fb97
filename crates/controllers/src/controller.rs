//! The common parts of all controllers: informers, queues, events, writes, clock.

pub mod api;
pub mod clock;
pub mod context;
pub mod informer;
pub(crate) mod members;
pub mod meta;
pub mod metrics;
pub mod nodes;
pub mod queue;
pub(crate) mod resource;
pub mod slim;
pub mod versioned;
pub mod whole;

pub use allot_client::events;
