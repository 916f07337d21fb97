//! Jobs and cron jobs.

use std::collections::BTreeSet;

use allot_apimachinery::cron::Schedule;
use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::Value;

use super::{label_selector, list, not_negative, one_of, pod, rule, text};

/// Pods of an indexed job at the same time.
const MAX_PARALLELISM: i64 = 100_000;
/// Longest name of a cron job: its jobs get a suffix of eleven characters.
const MAX_CRON_JOB_NAME: usize = 52;

/// Checks a job.
pub(super) fn job(object: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    job_spec(spec, &path, errors);
    if spec["selector"].is_object() {
        label_selector(&spec["selector"], &path.child("selector"), errors);
    }
}

/// Checks a change of a job.
pub(super) fn job_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    let (spec, before, path) = (&object["spec"], &old["spec"], Path::new("spec"));
    job(object, errors);
    let mut fixed = |key: &str, free: bool| {
        if spec[key] != before[key] && !free {
            let detail = "field is immutable";
            errors.push(Error::invalid(&path.child(key), &spec[key], detail));
        }
    };
    // An indexed job may grow and shrink as a whole.
    let elastic =
        text(spec, "completionMode") == "Indexed" && spec["completions"] == spec["parallelism"];
    fixed("completions", elastic);
    fixed("selector", false);
    // The job does not run: its pods may still be sent somewhere else.
    let movable = before["suspend"] == true;
    let same = movable && settled(&spec["template"]) == settled(&before["template"]);
    fixed("template", same);
    for key in [
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        fixed(key, false);
    }
}

/// A template without what says where its pods run and how they are told apart.
fn settled(template: &Value) -> Value {
    let mut template = template.clone();
    for (part, keys) in [
        ("metadata", &["annotations", "labels"][..]),
        ("spec", &["nodeSelector", "tolerations", "schedulingGates"]),
    ] {
        if let Some(Value::Object(map)) = template.get_mut(part) {
            map.retain(|key, _| !keys.contains(&key.as_str()));
        }
    }
    let spec = &mut template["spec"];
    if let Some(Value::Object(affinity)) = spec.get_mut("affinity") {
        affinity.remove("nodeAffinity");
        if affinity.is_empty() {
            spec["affinity"].take();
        }
    }
    for key in ["initContainers", "containers"] {
        for container in spec[key].as_array_mut().into_iter().flatten() {
            container["resources"].take();
        }
    }
    template
}

fn job_spec(spec: &Value, path: &Path, errors: &mut ErrorList) {
    for key in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        not_negative(&spec[key], &path.child(key), errors);
    }
    let manager = text(spec, "managedBy");
    if !manager.is_empty() && !manager.contains('/') {
        let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        errors.push(Error::invalid(&path.child("managedBy"), manager, detail));
    }
    completion(spec, path, errors);
    if spec["podFailurePolicy"].is_object() {
        failure_policy(
            &spec["podFailurePolicy"],
            &path.child("podFailurePolicy"),
            errors,
        );
    }
    let replacement = text(spec, "podReplacementPolicy");
    let supported: &[&str] = if spec["podFailurePolicy"].is_object() {
        &["Failed"]
    } else {
        &["Failed", "TerminatingOrFailed"]
    };
    one_of(
        replacement,
        supported,
        false,
        &path.child("podReplacementPolicy"),
        errors,
    );
    template(spec, path, errors);
}

fn completion(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let mode = text(spec, "completionMode");
    let at = path.child("completionMode");
    one_of(mode, &["NonIndexed", "Indexed"], false, &at, errors);
    if mode == "Indexed" {
        if spec["completions"].is_null() {
            let detail = "when completion mode is Indexed";
            errors.push(Error::required(&path.child("completions"), detail));
        }
        let parallelism = spec["parallelism"].as_i64().unwrap_or_default();
        if parallelism > MAX_PARALLELISM {
            let detail = format!(
                "must be less than or equal to {MAX_PARALLELISM} when completion mode is Indexed"
            );
            let at = path.child("parallelism");
            errors.push(Error::invalid(&at, parallelism, detail));
        }
    } else {
        for key in ["backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"] {
            if !spec[key].is_null() {
                let detail = "requires indexed completion mode";
                errors.push(Error::invalid(&path.child(key), &spec[key], detail));
            }
        }
    }
    if !spec["maxFailedIndexes"].is_null() && spec["backoffLimitPerIndex"].is_null() {
        let detail = "when maxFailedIndexes is specified";
        errors.push(Error::required(&path.child("backoffLimitPerIndex"), detail));
    }
}

fn failure_policy(policy: &Value, path: &Path, errors: &mut ErrorList) {
    let path = path.child("rules");
    for (index, item) in list(policy, "rules").iter().enumerate() {
        let at = path.index(index);
        let actions = ["Count", "FailIndex", "FailJob", "Ignore"];
        one_of(
            text(item, "action"),
            &actions,
            true,
            &at.child("action"),
            errors,
        );
        let codes = &item["onExitCodes"];
        let conditions = list(item, "onPodConditions");
        if codes.is_object() && !conditions.is_empty() {
            let detail = "specifying both OnExitCodes and OnPodConditions is not supported";
            errors.push(Error::invalid(&at, "", detail));
        } else if codes.is_object() {
            exit_codes(codes, &at.child("onExitCodes"), errors);
        } else if conditions.is_empty() {
            let detail = "specifying one of OnExitCodes and OnPodConditions is required";
            errors.push(Error::invalid(&at, "", detail));
        }
        for (place, condition) in conditions.iter().enumerate() {
            let at = at.child("onPodConditions").index(place);
            let kind = text(condition, "type");
            rule(names::qualified_name(kind), kind, &at.child("type"), errors);
            let states = ["False", "True", "Unknown"];
            one_of(
                text(condition, "status"),
                &states,
                true,
                &at.child("status"),
                errors,
            );
        }
    }
}

fn exit_codes(codes: &Value, path: &Path, errors: &mut ErrorList) {
    let operator = text(codes, "operator");
    one_of(
        operator,
        &["In", "NotIn"],
        true,
        &path.child("operator"),
        errors,
    );
    let values = list(codes, "values");
    let at = path.child("values");
    if values.is_empty() {
        errors.push(Error::invalid(
            &at,
            &codes["values"],
            "at least one value is required",
        ));
    }
    let mut seen = BTreeSet::new();
    for (index, value) in values.iter().enumerate() {
        let number = value.as_i64().unwrap_or_default();
        if operator == "In" && number == 0 {
            let detail = "must not be 0 for the In operator";
            errors.push(Error::invalid(&at.index(index), number, detail));
        }
        if !seen.insert(number) {
            errors.push(Error::duplicate(&at.index(index), number));
        }
    }
}

fn template(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let at = path.child("template");
    pod::template(&spec["template"], &at, errors);
    let policy = text(&spec["template"]["spec"], "restartPolicy");
    let at = at.child("spec").child("restartPolicy");
    // The defaults of pods have made "Always" of nothing.
    if policy == "Always" || policy.is_empty() {
        let detail = "valid values: \"OnFailure\", \"Never\"";
        errors.push(Error::required(&at, detail));
    } else if !matches!(policy, "OnFailure" | "Never") {
        errors.push(Error::not_supported(&at, policy, &["OnFailure", "Never"]));
    } else if spec["podFailurePolicy"].is_object() && policy != "Never" {
        let detail = "only \"Never\" is supported when podFailurePolicy is specified";
        errors.push(Error::invalid(&at, policy, detail));
    }
}

/// Checks a cron job; the length of the name counts for new ones.
pub(super) fn cron_job(object: &Value, create: bool, errors: &mut ErrorList) {
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
        errors.push(Error::invalid(
            &at.child("selector"),
            &inner["selector"],
            detail,
        ));
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
