//! The kinds of `events.k8s.io`.

use crate::registry::Builtin;

mod event;

/// The kinds of the group.
pub(super) const KINDS: &[&Builtin] = &[&event::EVENT];
