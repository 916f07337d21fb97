//! Deployments.

use super::APPS;
use crate::registry::{Builtin, Rules, SCALE, STATUS};
use crate::{table, validate, warnings};

pub(super) static DEPLOYMENT: Builtin = Builtin {
    kind: "Deployment",
    plural: "deployments",
    short: &["deploy"],
    subresources: &[SCALE, STATUS],
    rules: Rules {
        // Changes of annotations count, too: they are copied to replica sets.
        spec_changed: |new, old| {
            new["metadata"]["annotations"] != old["metadata"]["annotations"]
                || new["spec"] != old["spec"]
        },
        // The revision is an annotation that is written with the status; labels are not.
        status_keeps: &["labels"],
        reset_fields: &[("status", &[&["spec"], &["metadata", "labels"]])],
        warnings_create: Some(warnings::new_template),
        validate: |object, errors| validate::apps::validate("deployments", object, errors),
        validate_update: Some(|object, old, errors| {
            validate::apps::validate_update("deployments", object, old, errors)
        }),
        validate_status: Some(|object, old, errors| {
            validate::apps::validate_status("deployments", object, old, errors)
        }),
        table: Some((
            "Name|Ready|Up-to-date|Available|Age|Containers::1|Images::1|Selector::1",
            table::workloads::deployment,
        )),
        ..APPS.rules
    },
    ..APPS
};
