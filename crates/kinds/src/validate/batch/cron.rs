//! Cron jobs.

use allot_apimachinery::cron::Schedule;
use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::Value;

use super::super::{internal, not_negative, one_of, text};
use super::job_spec;

/// Longest name of a cron job: its jobs get a suffix of eleven characters.
const MAX_CRON_JOB_NAME: usize = 52;

/// Checks a cron job; the length of the name counts for new ones.
pub(crate) fn cron_job(object: &Value, create: bool, errors: &mut ErrorList) {
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
    let policies = ["Allow", "Forbid", "Replace"];
    let at = path.child("concurrencyPolicy");
    one_of(
        text(spec, "concurrencyPolicy"),
        &policies,
        true,
        &at,
        errors,
    );
    if let Some(zone) = spec["timeZone"].as_str() {
        time_zone(zone, &path.child("timeZone"), errors);
    }
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
