//! Structural schemas, strategic merge patch and server-side apply.

#![forbid(unsafe_code)]

pub mod apply;
pub mod decode;
pub mod defaults;
pub mod definition;
pub mod fields;
pub mod merge;
mod node;
pub mod strategic;
pub mod structural;
pub mod types;

pub use node::Node;
