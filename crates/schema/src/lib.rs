//! Structural schemas, strategic merge patch and server-side apply.

#![forbid(unsafe_code)]

pub mod decode;
pub mod types;
