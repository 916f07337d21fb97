//! Jobs.

use serde_json::{Value, json};

use super::BATCH;
use crate::object::{self, meta};
use crate::registry::{Builtin, ComputedField, Rules, UnsupportedField};
use crate::request::DeleteOptions;
use crate::table::format::{self, number, with_template};
use crate::table::{age, since};
use crate::warnings;

mod policies;
mod selector;
mod status;
pub(super) mod validation;

pub(super) static JOB: Builtin = Builtin {
    kind: "Job",
    plural: "jobs",
    rules: Rules {
        pod_template: Some(&["spec", "template"]),
        prepare_create: Some(selector::generate_selector),
        prepare_update: Some(|job, _, _| selector::label(job)),
        validate: validation::validate,
        validate_update: Some(validation::validate_update),
        validate_status: Some(status::validate),
        validate_generated: Some(selector::validate_selector),
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
            row,
        )),
        ..BATCH.rules
    },
    ..BATCH
};

fn of_job(job: &Value) -> Vec<String> {
    spec_warnings(&job["spec"], "spec")
}

/// By default jobs orphan their pods, which is rarely intended.
fn warn_of_orphans(options: &DeleteOptions) -> Option<&'static str> {
    options.propagation.is_none().then_some(
        "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or \
         set propagationPolicy=Orphan to suppress this warning",
    )
}

/// A job with so many indexes that its status may not hold all of them.
pub(super) fn spec_warnings(spec: &Value, path: &str) -> Vec<String> {
    const COMPLETIONS: i64 = 100_000;
    const PARALLELISM: i64 = 10_000;
    let more = |key: &str, limit| spec[key].as_i64().is_some_and(|number| number > limit);
    let mut found = Vec::new();
    if spec["completionMode"] == "Indexed"
        && more("completions", COMPLETIONS)
        && more("parallelism", PARALLELISM)
    {
        found.push(format!(
            "{path}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, \
             Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
        ));
    }
    found.extend(warnings::pod::warnings(
        &spec["template"],
        &format!("{path}.template."),
    ));
    found
}

fn row(object: &Value) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let succeeded = number(&status["succeeded"]);
    let completions = match (
        spec["completions"].as_i64(),
        spec["parallelism"].as_i64().unwrap_or(0),
    ) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    };
    let duration = match (
        object::text(status, &["startTime"]),
        object::text(status, &["completionTime"]),
    ) {
        ("", _) => String::new(),
        (start, "") => since(start),
        (start, end) => match (
            start.parse::<jiff::Timestamp>(),
            end.parse::<jiff::Timestamp>(),
        ) {
            (Ok(start), Ok(end)) => {
                allot_model::table::human_duration(end.duration_since(start).as_secs())
            }
            _ => String::new(),
        },
    };
    let has = |kind: &str| {
        status["conditions"].as_array().is_some_and(|list| {
            list.iter()
                .any(|it| it["type"] == kind && it["status"] == "True")
        })
    };
    let state = if has("Complete") {
        "Complete"
    } else if has("Failed") {
        "Failed"
    } else if object["metadata"]["deletionTimestamp"].is_string() {
        "Terminating"
    } else if has("Suspended") {
        "Suspended"
    } else if has("FailureTarget") {
        "FailureTarget"
    } else if has("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    };
    let cells = vec![
        json!(meta(object, "name")),
        json!(state),
        json!(completions),
        json!(duration),
        age(object),
    ];
    with_template(object, cells, format::label_selector(&spec["selector"]))
}
