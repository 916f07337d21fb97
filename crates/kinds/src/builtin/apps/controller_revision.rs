//! Controller revisions.

use super::APPS;
use crate::registry::{Builtin, Generation, Rules};
use crate::{table, validate};

pub(super) static CONTROLLER_REVISION: Builtin = Builtin {
    kind: "ControllerRevision",
    plural: "controllerrevisions",
    categories: &[],
    rules: Rules {
        pod_template: None,
        generation: Generation::None,
        validate: |object, errors| validate::apps::validate("controllerrevisions", object, errors),
        validate_update: Some(|object, old, errors| {
            validate::apps::validate_update("controllerrevisions", object, old, errors)
        }),
        validates_metadata_again: true,
        warnings: Rules::DEFAULT.warnings,
        table: Some((
            "Name|Controller|Revision|Age",
            table::workloads::controller_revision,
        )),
        ..APPS.rules
    },
    ..APPS
};
