//! The kinds of `discovery.k8s.io`.

use crate::registry::Builtin;

mod endpoint_slice;

/// The kinds of the group.
pub(super) const KINDS: &[&Builtin] = &[&endpoint_slice::ENDPOINT_SLICE];
