//! When a job has failed, and when it has done enough.

use std::collections::BTreeSet;

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::Value;

use super::status::intervals;
use crate::validate::{internal, list, not_negative, rule, text};

const MAX_RULES: usize = 20;
const MAX_CONDITIONS: usize = 20;
const MAX_EXIT_CODES: usize = 255;
/// Longest list of indexes, in bytes.
const MAX_INDEXES: usize = 64 << 10;

/// One of a few values; an empty one gets a message with all of them.
fn word(found: &str, known: &[&str], path: &Path, errors: &mut ErrorList) {
    if found.is_empty() {
        let known: Vec<String> = known.iter().map(|it| format!("{it:?}")).collect();
        let detail = format!("valid values: [{}]", known.join(" "));
        errors.push(Error::required(path, detail));
    } else if !known.contains(&found) {
        errors.push(Error::not_supported(path, found, known));
    }
}

/// Checks what to do about pods that fail.
pub(super) fn failure(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let path = path.child("rules");
    let rules = list(&spec["podFailurePolicy"], "rules");
    if rules.len() > MAX_RULES {
        errors.push(Error::too_many(&path, rules.len(), MAX_RULES));
    }
    let template = &spec["template"]["spec"];
    let containers: BTreeSet<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|key| list(template, key))
        .map(|container| text(container, "name"))
        .collect();
    for (index, item) in rules.iter().enumerate() {
        failure_rule(spec, item, &containers, &path.index(index), errors);
    }
}

fn failure_rule(
    spec: &Value,
    item: &Value,
    containers: &BTreeSet<&str>,
    path: &Path,
    errors: &mut ErrorList,
) {
    let (action, at) = (text(item, "action"), path.child("action"));
    if action == "FailIndex" {
        if spec["backoffLimitPerIndex"].is_null() {
            let detail = "requires the backoffLimitPerIndex to be set";
            errors.push(Error::invalid(&at, action, detail));
        }
    } else {
        word(
            action,
            &["Count", "FailIndex", "FailJob", "Ignore"],
            &at,
            errors,
        );
    }
    let codes = &item["onExitCodes"];
    let conditions = list(item, "onPodConditions");
    if codes.is_object() {
        exit_codes(codes, containers, &path.child("onExitCodes"), errors);
    }
    pod_conditions(conditions, &path.child("onPodConditions"), errors);
    let detail = match (codes.is_object(), conditions.is_empty()) {
        (true, false) => "specifying both OnExitCodes and OnPodConditions is not supported",
        (false, true) => "specifying one of OnExitCodes and OnPodConditions is required",
        _ => return,
    };
    errors.push(Error::invalid(path, BadValue::Omitted, detail));
}

fn pod_conditions(conditions: &[Value], path: &Path, errors: &mut ErrorList) {
    if conditions.len() > MAX_CONDITIONS {
        errors.push(Error::too_many(path, conditions.len(), MAX_CONDITIONS));
    }
    for (index, condition) in conditions.iter().enumerate() {
        let at = path.index(index);
        let kind = text(condition, "type");
        rule(names::qualified_name(kind), kind, &at.child("type"), errors);
        let states = ["False", "True", "Unknown"];
        word(
            text(condition, "status"),
            &states,
            &at.child("status"),
            errors,
        );
    }
}

fn exit_codes(codes: &Value, containers: &BTreeSet<&str>, path: &Path, errors: &mut ErrorList) {
    let operator = text(codes, "operator");
    word(operator, &["In", "NotIn"], &path.child("operator"), errors);
    if let Some(name) = codes["containerName"].as_str()
        && !containers.contains(name)
    {
        let detail = "must be one of the container or initContainer names in the pod template";
        errors.push(Error::invalid(&path.child("containerName"), name, detail));
    }
    let values = list(codes, "values");
    let at = path.child("values");
    if values.is_empty() {
        let detail = "at least one value is required";
        errors.push(Error::invalid(&at, &codes["values"], detail));
    } else if values.len() > MAX_EXIT_CODES {
        errors.push(Error::too_many(&at, values.len(), MAX_EXIT_CODES));
    }
    let numbers: Vec<i64> = values.iter().filter_map(Value::as_i64).collect();
    let mut seen = BTreeSet::new();
    for (index, number) in numbers.iter().copied().enumerate() {
        if operator == "In" && number == 0 {
            let detail = "must not be 0 for the In operator";
            errors.push(Error::invalid(&at.index(index), number, detail));
        }
        if !seen.insert(number) {
            errors.push(Error::duplicate(&at.index(index), number));
        }
    }
    if !numbers.is_sorted() {
        errors.push(Error::invalid(&at, &codes["values"], "must be ordered"));
    }
}

/// Checks when a job has done enough.
pub(super) fn success(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let policy = &spec["successPolicy"];
    if !policy.is_object() {
        return;
    }
    if text(spec, "completionMode") != "Indexed" {
        let detail = "requires indexed completion mode";
        let shown = internal::shown(("batch", "v1", "Job"), &["spec", "successPolicy"], policy);
        errors.push(Error::invalid(path, shown, detail));
        return;
    }
    let (rules, path) = (list(policy, "rules"), path.child("rules"));
    if rules.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.push(Error::required(&path, detail));
    }
    if rules.len() > MAX_RULES {
        errors.push(Error::too_many(&path, rules.len(), MAX_RULES));
    }
    let completions = spec["completions"].as_i64().unwrap_or_default();
    for (index, item) in rules.iter().enumerate() {
        success_rule(item, completions, &path.index(index), errors);
    }
}

fn success_rule(item: &Value, completions: i64, path: &Path, errors: &mut ErrorList) {
    let (indexes, count) = (item["succeededIndexes"].as_str(), &item["succeededCount"]);
    if indexes.is_none() && count.is_null() {
        let detail = "at least one of succeededCount or succeededIndexes must be specified";
        errors.push(Error::required(path, detail));
    }
    let mut total = 0;
    if let Some(indexes) = indexes {
        let at = path.child("succeededIndexes");
        if indexes.len() > MAX_INDEXES {
            errors.push(Error::too_long(&at, MAX_INDEXES));
        }
        match intervals(indexes, completions) {
            Ok(found) => total = found,
            Err(why) => {
                let detail = format!("error parsing succeededIndexes: {why}");
                errors.push(Error::invalid(&at, indexes, detail));
            }
        }
    }
    let at = path.child("succeededCount");
    not_negative(count, &at, errors);
    let Some(count) = count.as_i64() else { return };
    let mut at_most = |most: i64, what: &str| {
        if count > most {
            let detail = format!("must be less than or equal to {most} (the number of {what})");
            errors.push(Error::invalid(&at, count, detail));
        }
    };
    at_most(completions, "specified completions");
    if indexes.is_some() {
        at_most(total, "indexes in the specified succeededIndexes field");
    }
}
