//! What the scheduler and its extensions have in common: pods and nodes as an attempt sees them, selectors, the assume
//! cache, codes of rejections.
//!
//! The scheduler exports these modules again, so that its own modules and plugins find them as `crate::pod` and so on. A
//! crate of its own holds them because an extension in another crate, such as classic DRA, is below the scheduler. Every
//! function is pure.

#![forbid(unsafe_code)]
// Time, randomness and files are inputs; see clippy.toml.
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod assume_cache;
pub mod node;
pub mod pod;
pub mod resources;
pub mod selectors;
pub mod status;
pub mod version;
