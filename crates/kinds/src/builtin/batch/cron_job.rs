//! Cron jobs.

use serde_json::Value;

use super::BATCH;
use crate::registry::{Builtin, Rules};
use crate::{table, validate, warnings};

pub(super) static CRON_JOB: Builtin = Builtin {
    kind: "CronJob",
    plural: "cronjobs",
    short: &["cj"],
    rules: Rules {
        pod_template: Some(&["spec", "jobTemplate", "spec", "template"]),
        validate_create: Some(|object, errors| validate::batch::cron_job(object, true, errors)),
        validate_update: Some(|object, _, errors| validate::batch::cron_job(object, false, errors)),
        validates_metadata_again: false,
        warnings: of_template,
        warnings_create: Some(|object| warnings::with_host_name(object, of_template(object))),
        warnings_update: Some(|object, old| warnings::after_change(object, old, of_template)),
        table: Some((
            "Name|Schedule|Timezone|Suspend:boolean|Active:integer|Last Schedule|Age|Containers::1|Images::1|Selector::1",
            table::workloads::cron_job,
        )),
        ..BATCH.rules
    },
    ..BATCH
};

fn of_template(object: &Value) -> Vec<String> {
    warnings::job(
        &object["spec"]["jobTemplate"]["spec"],
        "spec.jobTemplate.spec",
    )
}
