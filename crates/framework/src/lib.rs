//! What the scheduler and its extensions have in common: pods and nodes as an attempt sees them, selectors, the assume
//! cache, codes of rejections, and the extension point for claims of another generation ([`claim_plugin`]).
//!
//! The scheduler exports these modules again, so that its own modules and plugins find them as `crate::pod` and so on. A
//! crate of its own holds them because an extension in another crate, such as classic DRA, is below the scheduler. Every
//! function is pure; [`claim_locks`] waits for other tasks, and does no I/O.

#![forbid(unsafe_code)]
// Time, randomness and files are inputs; see clippy.toml.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod assume_cache;
pub mod claim_locks;
pub mod claim_plugin;
pub mod node;
pub mod pod;
pub mod resources;
pub mod selectors;
pub mod status;
pub mod version;
