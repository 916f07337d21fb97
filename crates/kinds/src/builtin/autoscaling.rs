//! The kinds of `autoscaling`.

use crate::registry::Builtin;

mod horizontal_pod_autoscaler;

/// The kinds of the group.
pub(super) const KINDS: &[&Builtin] = &[&horizontal_pod_autoscaler::HORIZONTAL_POD_AUTOSCALER];
