//! The kinds of `coordination.k8s.io`.

use crate::registry::Builtin;

mod lease;

/// The kinds of the group.
pub(super) const KINDS: &[&Builtin] = &[&lease::LEASE];
