//! Rules for a job's status, whichever controller writes it: a finished job does not continue, and counts do not
//! decrease.

use std::collections::BTreeSet;

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::quote::quote;
use serde_json::Value;

use crate::validate::{internal, list, not_negative, text};

/// A job and its status.
struct Reported<'a> {
    job: &'a Value,
    status: &'a Value,
}

impl<'a> Reported<'a> {
    fn of(job: &'a Value) -> Self {
        let status = &job["status"];
        Reported { job, status }
    }

    fn is(&self, condition: &str) -> bool {
        let mut conditions = list(self.status, "conditions").iter();
        conditions.any(|it| it["type"] == condition && it["status"] == "True")
    }

    fn finished(&self) -> bool {
        self.is("Complete") || self.is("Failed")
    }

    fn count(&self, key: &str) -> i64 {
        self.status[key].as_i64().unwrap_or_default()
    }

    fn time(&self, key: &str) -> Option<jiff::Timestamp> {
        self.status[key].as_str()?.parse().ok()
    }

    fn completions(&self) -> Option<i64> {
        self.job["spec"]["completions"].as_i64()
    }

    fn uncounted(&self) -> usize {
        let uncounted = &self.status["uncountedTerminatedPods"];
        list(uncounted, "failed").len() + list(uncounted, "succeeded").len()
    }
}

/// Validates a new status. Old errors do not prevent other changes.
pub(super) fn validate(object: &Value, old: &Value, errors: &mut ErrorList) {
    let (now, before) = (Reported::of(object), Reported::of(old));
    counts(&now, errors);
    let path = Path::new("status");
    ends(&now, &before, &path, errors);
    indexes(&now, &before, &path, errors);
    more(&now, &before, &path, errors);
    transitions(&now, &before, &path, errors);
}

fn conditions(detail: impl Into<String>) -> Error {
    let path = Path::new("status").child("conditions");
    Error::invalid(&path, BadValue::Omitted, detail)
}

fn counts(now: &Reported<'_>, errors: &mut ErrorList) {
    let path = Path::new("status");
    for key in ["active", "succeeded", "failed", "ready", "terminating"] {
        not_negative(&now.status[key], &path.child(key), errors);
    }
    let uncounted = &now.status["uncountedTerminatedPods"];
    let path = path.child("uncountedTerminatedPods");
    let mut seen = BTreeSet::new();
    for key in ["succeeded", "failed"] {
        for (index, pod) in list(uncounted, key).iter().enumerate() {
            let at = path.child(key).index(index);
            let pod = pod.as_str().unwrap_or_default();
            if pod.is_empty() {
                errors.push(Error::invalid(&at, "", "must not be empty"));
            } else if !seen.insert(pod) {
                errors.push(Error::duplicate(&at, pod));
            }
        }
    }
}

/// Requirements on the status of a finished job.
fn ends(now: &Reported<'_>, before: &Reported<'_>, path: &Path, errors: &mut ErrorList) {
    let changed = |condition: &str| now.is(condition) != before.is(condition);
    let differs = |key: &str| now.status[key] != before.status[key];
    let (complete, failed) = (now.is("Complete"), now.is("Failed"));
    let completed = changed("Complete");
    if (completed || changed("Failed")) && complete && failed {
        errors.push(conditions(
            "cannot set Complete=True and Failed=true conditions",
        ));
    }
    if (completed || changed("FailureTarget")) && complete && now.is("FailureTarget") {
        errors.push(conditions(
            "cannot set Complete=True and FailureTarget=true conditions",
        ));
    }
    let at = path.child("completionTime");
    let ended = &now.status["completionTime"];
    if completed || differs("completionTime") {
        if !ended.is_null() && !complete {
            let detail = "cannot set completionTime when there is no Complete=True condition";
            errors.push(Error::invalid(&at, ended, detail));
        }
        if ended.is_null() && complete {
            let detail = "completionTime is required for Complete jobs";
            errors.push(Error::required(&at, detail));
        }
    }
    if differs("startTime") || differs("completionTime") {
        let times = now.time("startTime").zip(now.time("completionTime"));
        if times.is_some_and(|(start, end)| end < start) {
            let detail = "completionTime cannot be set before startTime";
            errors.push(Error::invalid(&at, ended, detail));
        }
    }
    if (changed("Failed") || differs("failedIndexes")) && failed && !now.is("FailureTarget") {
        errors.push(conditions(
            "cannot set Failed=True condition without the FailureTarget=true condition",
        ));
    }
    if (completed || changed("SuccessCriteriaMet")) && complete && !now.is("SuccessCriteriaMet") {
        errors.push(conditions(
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        ));
    }
    let finished = now.finished();
    let finish = finished != before.finished();
    let active = now.count("active");
    if (finish || differs("active")) && active > 0 && finished {
        let detail = "active>0 is invalid for finished job";
        errors.push(Error::invalid(&path.child("active"), active, detail));
    }
    let spec = &now.job["spec"];
    let nothing_to_do = spec["suspend"] == true && spec["completions"] == 0;
    let started = &now.status["startTime"];
    if (finish || differs("startTime")) && !nothing_to_do && started.is_null() && finished {
        let detail = "startTime is required for finished job";
        errors.push(Error::required(&path.child("startTime"), detail));
    }
    let key = "uncountedTerminatedPods";
    if (finish || differs(key)) && finished && now.uncounted() > 0 {
        let detail = "uncountedTerminatedPods needs to be empty for finished job";
        let shown = internal::shown(("batch", "v1", "Job"), &["status", key], &now.status[key]);
        errors.push(Error::invalid(&path.child(key), shown, detail));
    }
}

/// Which indexes have ended.
fn indexes(now: &Reported<'_>, before: &Reported<'_>, path: &Path, errors: &mut ErrorList) {
    let differs = |key: &str| now.status[key] != before.status[key];
    let spec = &now.job["spec"];
    let completed = text(now.status, "completedIndexes");
    let failed = now.status["failedIndexes"].as_str();
    let at = |key: &str| path.child(key);
    let per_index = !spec["backoffLimitPerIndex"].is_null();
    if let Some(completions) = now.completions() {
        let parsed = [
            ("completedIndexes", Some(completed)),
            ("failedIndexes", failed.filter(|_| per_index)),
        ];
        for (key, found) in parsed {
            let Some(found) = found.filter(|_| differs(key)) else {
                continue;
            };
            if let Err(why) = intervals(found, completions) {
                let detail = format!("error parsing {key}: {why}");
                errors.push(Error::invalid(&at(key), found, detail));
            }
        }
    }
    if differs("completedIndexes")
        && !completed.is_empty()
        && text(spec, "completionMode") != "Indexed"
    {
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        errors.push(Error::invalid(&at("completedIndexes"), completed, detail));
    }
    let Some(failed) = failed else { return };
    if differs("failedIndexes") && !per_index {
        let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        errors.push(Error::invalid(&at("failedIndexes"), failed, detail));
    }
    if (differs("failedIndexes") || differs("completedIndexes"))
        && let Some(completions) = now.completions()
        && let Some(index) = overlap(completed, failed, completions)
    {
        let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
        errors.push(Error::invalid(&at("failedIndexes"), failed, detail));
    }
}

/// The other errors of a status itself, in upstream's order.
fn more(now: &Reported<'_>, before: &Reported<'_>, path: &Path, errors: &mut ErrorList) {
    let differs = |key: &str| now.status[key] != before.status[key];
    let finished = now.finished();
    let terminating = now.count("terminating");
    if (finished != before.finished() || differs("terminating")) && terminating > 0 && finished {
        let detail = "terminating>0 is invalid for finished job";
        let at = path.child("terminating");
        errors.push(Error::invalid(&at, terminating, detail));
    }
    let ready = now.count("ready");
    if (differs("ready") || differs("active"))
        && now.status["ready"].is_number()
        && ready > now.count("active")
    {
        let detail = "cannot set more ready pods than active";
        errors.push(Error::invalid(&path.child("ready"), ready, detail));
    }
    let met = now.is("SuccessCriteriaMet");
    if met && now.is("Failed") {
        errors.push(conditions(
            "cannot set SuccessCriteriaMet=True and Failed=true conditions",
        ));
    }
    if met && now.is("FailureTarget") {
        errors.push(conditions(
            "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
        ));
    }
    if now.job["spec"]["successPolicy"].is_object() && !met && now.is("Complete") {
        errors.push(conditions(
            "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
        ));
    }
}

/// Transitions that are not allowed.
fn transitions(now: &Reported<'_>, before: &Reported<'_>, path: &Path, errors: &mut ErrorList) {
    for condition in ["Failed", "Complete", "FailureTarget"] {
        if before.is(condition) && !now.is(condition) {
            let detail = format!("cannot disable the terminal {condition}=True condition");
            errors.push(conditions(detail));
        }
    }
    let spec = &now.job["spec"];
    // Such a job may be scaled down.
    let elastic =
        text(spec, "completionMode") == "Indexed" && spec["completions"] == spec["parallelism"];
    for (key, counts) in [("failed", true), ("succeeded", !elastic)] {
        let count = now.count(key);
        if counts && count < before.count(key) {
            let detail = format!("cannot decrease the {key} counter");
            errors.push(Error::invalid(&path.child(key), count, detail));
        }
    }
    let (ended, ended_before) = (
        &now.status["completionTime"],
        &before.status["completionTime"],
    );
    if !ended.is_null() && !ended_before.is_null() && ended != ended_before {
        let detail = "completionTime cannot be mutated";
        let at = path.child("completionTime");
        errors.push(Error::invalid(&at, ended, detail));
    }
    let started = &before.status["startTime"];
    if !started.is_null() && *started != now.status["startTime"] && spec["suspend"] != true {
        let detail = "startTime cannot be removed for unsuspended job";
        errors.push(Error::required(&path.child("startTime"), detail));
    }
    let met = "SuccessCriteriaMet";
    if before.is(met) && !now.is(met) {
        errors.push(conditions(
            "cannot disable the SuccessCriteriaMet=True condition",
        ));
    }
    if before.is("Complete") && !before.is(met) && now.is(met) {
        errors.push(conditions(
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions",
        ));
    }
}

/// Why a text is not a list of intervals of indexes; the texts are upstream's.
#[derive(Debug, thiserror::Error)]
pub(super) enum IntervalError {
    #[error("non-increasing order, previous: {previous}, current: {current}")]
    Order { previous: i64, current: i64 },
    #[error(
        "the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'",
        quote(.0)
    )]
    Parts(String),
    #[error("cannot convert string to integer for index: {}", quote(.0))]
    NotANumber(String),
    #[error("too large index: {}", quote(.0))]
    TooLarge(String),
}

/// The number of indexes in a list of intervals such as `1,3-5`. All indexes must be smaller than `completions`.
pub(super) fn intervals(text: &str, completions: i64) -> Result<i64, IntervalError> {
    let mut total = 0;
    let mut last: Option<i64> = None;
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let (from, to) = interval(part, completions)?;
        if let Some(previous) = last.filter(|last| *last >= from) {
            return Err(IntervalError::Order {
                previous,
                current: from,
            });
        }
        total += to - from + 1;
        last = Some(to);
    }
    Ok(total)
}

/// The first and the last index of an interval.
fn interval(part: &str, completions: i64) -> Result<(i64, i64), IntervalError> {
    let limits: Vec<&str> = part.split('-').collect();
    if limits.len() > 2 {
        return Err(IntervalError::Parts(part.to_owned()));
    }
    let index = |text: &str| {
        let number = text.parse::<i64>();
        let number = number.map_err(|_| IntervalError::NotANumber(text.to_owned()))?;
        if number >= completions {
            return Err(IntervalError::TooLarge(text.to_owned()));
        }
        Ok(number)
    };
    let from = index(limits[0])?;
    let Some(to) = limits.get(1) else {
        return Ok((from, from));
    };
    let to = index(to)?;
    if from >= to {
        return Err(IntervalError::Order {
            previous: from,
            current: to,
        });
    }
    Ok((from, to))
}

/// The first index that is in both; parse errors are reported elsewhere.
fn overlap(completed: &str, failed: &str, completions: i64) -> Option<i64> {
    let read = |text: &str| -> Vec<(i64, i64)> {
        let parts = text.split(',').filter(|_| !text.is_empty());
        parts
            .filter_map(|it| interval(it, completions).ok())
            .collect()
    };
    let (completed, failed) = (read(completed), read(failed));
    let pairs = completed
        .iter()
        .flat_map(|one| failed.iter().map(move |other| (one, other)));
    pairs
        .filter(|(one, other)| one.0 <= other.1 && other.0 <= one.1)
        .map(|(one, other)| one.0.max(other.0))
        .min()
}
