//! The kinds of `apps`.

use crate::registry::{BASE, Builtin, Generation, Rules};
use crate::warnings;

mod controller_revision;
mod daemon_set;
mod deployment;
pub(super) mod replica_set;
mod stateful_set;

/// The kinds of the group.
pub(super) const KINDS: &[&Builtin] = &[
    &controller_revision::CONTROLLER_REVISION,
    &daemon_set::DAEMON_SET,
    &deployment::DEPLOYMENT,
    &replica_set::REPLICA_SET,
    &stateful_set::STATEFUL_SET,
];

/// What the kinds of the group have in common.
const APPS: Builtin = Builtin {
    group: "apps",
    categories: &["all"],
    rules: Rules {
        pod_template: Some(&["spec", "template"]),
        generation: Generation::FromCreate,
        validates_metadata_again: false,
        warnings: warnings::template,
        warnings_update: Some(|object, old| {
            warnings::after_change(object, old, warnings::template)
        }),
        ..Rules::DEFAULT
    },
    ..BASE
};
