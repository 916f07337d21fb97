//! The kinds of `batch`.

use crate::registry::{BASE, Builtin, Generation, Rules, STATUS};

mod cron_job;
mod job;

/// The kinds of the group.
pub(super) const KINDS: &[&Builtin] = &[&cron_job::CRON_JOB, &job::JOB];

/// What the kinds of the group have in common.
const BATCH: Builtin = Builtin {
    group: "batch",
    categories: &["all"],
    subresources: &[STATUS],
    rules: Rules {
        generation: Generation::FromCreate,
        ..Rules::DEFAULT
    },
    ..BASE
};
