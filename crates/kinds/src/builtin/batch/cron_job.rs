//! Cron jobs.

use allot_apimachinery::cron::Schedule;
use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::{Value, json};

use super::job::validation::job_spec;
use super::{BATCH, job};
use crate::object::{self, meta};
use crate::registry::{Builtin, Rules};
use crate::table::format::{self, containers};
use crate::table::{age, since};
use crate::validate::{internal, not_negative, one_of, text};
use crate::warnings;

pub(super) static CRON_JOB: Builtin = Builtin {
    kind: "CronJob",
    plural: "cronjobs",
    short: &["cj"],
    rules: Rules {
        pod_template: Some(&["spec", "jobTemplate", "spec", "template"]),
        validate_create: Some(|object, errors| validate(object, true, errors)),
        validate_update: Some(|object, _, errors| validate(object, false, errors)),
        validates_metadata_again: false,
        warnings: of_template,
        warnings_create: Some(|object| warnings::with_host_name(object, of_template(object))),
        warnings_update: Some(|object, old| warnings::after_change(object, old, of_template)),
        table: Some((
            "Name|Schedule|Timezone|Suspend:boolean|Active:integer|Last Schedule|Age|Containers::1|Images::1|Selector::1",
            row,
        )),
        ..BATCH.rules
    },
    ..BATCH
};

fn of_template(object: &Value) -> Vec<String> {
    job::spec_warnings(
        &object["spec"]["jobTemplate"]["spec"],
        "spec.jobTemplate.spec",
    )
}

/// Longest name of a cron job: its jobs get a suffix of eleven characters.
const MAX_CRON_JOB_NAME: usize = 52;

/// Checks a cron job; the length of the name counts for new ones.
fn validate(object: &Value, create: bool, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let schedule = text(spec, "schedule");
    let at = path.child("schedule");
    if schedule.is_empty() {
        errors.push(Error::required(&at, ""));
    } else if schedule.contains("TZ") {
        let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        errors.push(Error::invalid(&at, schedule, detail));
    } else if let Err(error) = schedule.parse::<Schedule>() {
        errors.push(Error::invalid(&at, schedule, error.to_string()));
    }
    not_negative(
        &spec["startingDeadlineSeconds"],
        &path.child("startingDeadlineSeconds"),
        errors,
    );
    if let Some(zone) = spec["timeZone"].as_str() {
        time_zone(zone, &path.child("timeZone"), errors);
    }
    let policies = ["Allow", "Forbid", "Replace"];
    let at = path.child("concurrencyPolicy");
    one_of(
        text(spec, "concurrencyPolicy"),
        &policies,
        true,
        &at,
        errors,
    );
    let (inner, at) = (
        &spec["jobTemplate"]["spec"],
        path.child("jobTemplate").child("spec"),
    );
    job_spec(inner, &at, errors);
    if inner["selector"].is_object() {
        let detail = "`selector` will be auto-generated";
        let shown = internal::selector(&inner["selector"]);
        errors.push(Error::invalid(&at.child("selector"), shown, detail));
    }
    if inner["manualSelector"] == true {
        let at = at.child("manualSelector");
        errors.push(Error::not_supported(
            &at,
            &inner["manualSelector"],
            &["nil", "false"],
        ));
    }
    for key in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        not_negative(&spec[key], &path.child(key), errors);
    }
    let name = text(&object["metadata"], "name");
    if create && name.len() > MAX_CRON_JOB_NAME {
        let detail = format!("must be no more than {MAX_CRON_JOB_NAME} characters");
        let at = Path::new("metadata").child("name");
        errors.push(Error::invalid(&at, name, detail));
    }
}

fn time_zone(zone: &str, path: &Path, errors: &mut ErrorList) {
    let detail = if zone.is_empty() {
        "timeZone must be nil or non-empty string".to_owned()
    } else if zone.eq_ignore_ascii_case("local") {
        "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
            .to_owned()
    } else if zone != "UTC" && jiff::tz::TimeZone::get(zone).is_err() {
        format!("unknown time zone {zone}")
    } else {
        return;
    };
    errors.push(Error::invalid(path, zone, detail));
}

fn row(object: &Value) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let last = match object::text(status, &["lastScheduleTime"]) {
        "" => "<none>".to_owned(),
        time => since(time),
    };
    let zone = spec["timeZone"].as_str().unwrap_or("<none>");
    let (names, images) = containers(&spec["jobTemplate"]["spec"]["template"]["spec"]);
    vec![
        json!(meta(object, "name")),
        json!(object::text(spec, &["schedule"])),
        json!(zone),
        json!(match spec["suspend"].as_bool() {
            Some(true) => "True",
            Some(false) => "False",
            None => "<unset>",
        }),
        json!(status["active"].as_array().map_or(0, Vec::len)),
        json!(last),
        age(object),
        json!(names),
        json!(images),
        json!(format::label_selector(
            &spec["jobTemplate"]["spec"]["selector"]
        )),
    ]
}
