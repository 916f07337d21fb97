//! Jobs.

use serde_json::Value;

use super::BATCH;
use crate::registry::{Builtin, ComputedField, Rules, UnsupportedField};
use crate::request::DeleteOptions;
use crate::{jobs, table, validate, warnings};

pub(super) static JOB: Builtin = Builtin {
    kind: "Job",
    plural: "jobs",
    rules: Rules {
        pod_template: Some(&["spec", "template"]),
        prepare_create: Some(jobs::generate_selector),
        prepare_update: Some(|job, _, _| jobs::label(job)),
        validate: validate::batch::job,
        validate_update: Some(validate::batch::job_update),
        validate_status: Some(validate::batch::job_status),
        validate_generated: Some(jobs::validate_selector),
        warnings: of_job,
        warnings_create: Some(|object| warnings::with_host_name(object, of_job(object))),
        warnings_update: Some(|object, old| warnings::after_change(object, old, of_job)),
        warning_delete: Some(warn_of_orphans),
        orphans_by_default: true,
        selectable: &["status.successful"],
        computed_fields: &[ComputedField {
            name: "status.successful",
            reads: &["status.succeeded"],
            value: |job| job["status"]["succeeded"].as_i64().unwrap_or(0).to_string(),
        }],
        unsupported_field: UnsupportedField::NotSupportedForKind,
        table: Some((
            "Name|Status|Completions|Duration|Age|Containers::1|Images::1|Selector::1",
            table::workloads::job,
        )),
        ..BATCH.rules
    },
    ..BATCH
};

fn of_job(job: &Value) -> Vec<String> {
    warnings::job(&job["spec"], "spec")
}

/// By default jobs orphan their pods, which is rarely intended.
fn warn_of_orphans(options: &DeleteOptions) -> Option<&'static str> {
    options.propagation.is_none().then_some(
        "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or \
         set propagationPolicy=Orphan to suppress this warning",
    )
}
