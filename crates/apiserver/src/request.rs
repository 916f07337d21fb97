//! Request attributes (see [`allot_kinds::request`]) and a request before it is handled.

mod annotations;
mod incoming;

pub use allot_kinds::request::*;
pub use annotations::Annotations;
pub use incoming::Incoming;
pub(crate) use incoming::is_long_running;
