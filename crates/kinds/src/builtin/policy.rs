//! The kinds of `policy`.

use crate::registry::Builtin;

mod pod_disruption_budget;

/// The kinds of the group.
pub(super) const KINDS: &[&Builtin] = &[&pod_disruption_budget::POD_DISRUPTION_BUDGET];
