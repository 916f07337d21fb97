//! The kinds of `node.k8s.io`.

use crate::registry::Builtin;

mod runtime_class;

/// The kinds of the group.
pub(super) const KINDS: &[&Builtin] = &[&runtime_class::RUNTIME_CLASS];
