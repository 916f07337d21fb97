//! The kinds of `scheduling.k8s.io`.

use crate::registry::Builtin;

mod disabled_fields;
mod pod_group;
mod priority_class;
mod validation;
mod workload;

/// The kinds of the group.
pub(super) const KINDS: &[&Builtin] = &[
    &pod_group::POD_GROUP,
    &priority_class::PRIORITY_CLASS,
    &workload::WORKLOAD,
];
