//! Validation of jobs.

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::Value;

use super::policies;
use crate::empties;
use crate::object::meta;
use crate::validate::{
    IMMUTABLE, domain_prefixed_path, internal, label_selector, list, not_negative, one_of_set, pod,
    pod_diff, text, workloads,
};

/// Pods of an indexed job at the same time, and indexes that may fail.
const MAX_PARALLELISM: i64 = 100_000;
/// Number of completions from which an indexed job with limits per index counts as large, and its limits.
const MANY_COMPLETIONS: i64 = 100_000;
const MAX_OF_MANY: i64 = 10_000;
/// Longest name of another controller.
const MAX_MANAGER: usize = 63;

/// Checks a job.
pub(super) fn validate(object: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    job_spec(spec, &path, errors);
    let (selector, at) = (&spec["selector"], path.child("selector"));
    match selector.is_object() {
        true => label_selector(selector, &at, errors),
        false => errors.push(Error::required(&at, "")),
    }
    // An invalid selector is an error of its own.
    if let Some(selector) = workloads::working_selector(spec) {
        workloads::template_matches(spec, selector.as_ref(), &path, errors);
    }
    host_names(object, errors);
}

/// The host name of the last pod of an indexed job has the job's name and the pod's index in it.
fn host_names(job: &Value, errors: &mut ErrorList) {
    let spec = &job["spec"];
    let completions = spec["completions"].as_i64().filter(|many| *many > 0);
    let (Some(many), "Indexed") = (completions, text(spec, "completionMode")) else {
        return;
    };
    let name = meta(job, "name");
    let host = format!("{name}-{}", many - 1);
    if !names::dns1123_label(&host).is_empty() {
        let detail = format!("will not able to create pod with invalid DNS label: {host}");
        let path = Path::new("metadata").child("name");
        errors.push(Error::invalid(&path, name, detail));
    }
}

/// Checks a change of a job.
pub(super) fn validate_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    let (spec, before, path) = (&object["spec"], &old["spec"], Path::new("spec"));
    // Upstream validates the job as a new one, and its spec a second time.
    validate(object, errors);
    validate(object, errors);
    let fixed = |key: &str, errors: &mut ErrorList| {
        if spec[key] != before[key] {
            let shown = match key {
                "template" => BadValue::raw(pod_diff::template(&sent(spec)[key])),
                _ if spec[key].is_null() => BadValue::raw("null".to_owned()),
                "selector" => internal::selector(&spec[key]),
                _ => internal::shown(("batch", "v1", "Job"), &["spec", key], &spec[key]),
            };
            errors.push(Error::invalid(&path.child(key), shown, IMMUTABLE));
        }
    };
    match text(spec, "completionMode") {
        "Indexed" => resized(spec, before, &path.child("completions"), errors),
        _ => fixed("completions", errors),
    }
    fixed("selector", errors);
    if is_movable(old) {
        let [now, was] = [spec, before].map(|spec| settled(&spec["template"]));
        if now["spec"] != was["spec"] {
            let shown = BadValue::raw(pod_diff::spec(&sent(spec)["template"]["spec"]));
            let at = path.child("template").child("spec");
            errors.push(Error::invalid(&at, shown, IMMUTABLE));
        }
    } else {
        fixed("template", errors);
    }
    for key in [
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        fixed(key, errors);
    }
}

/// The spec with the lists that were sent empty.
fn sent(spec: &Value) -> Value {
    empties::shown_spec(spec, |_| false)
}

/// An indexed job grows and shrinks as a whole.
fn resized(spec: &Value, before: &Value, path: &Path, errors: &mut ErrorList) {
    let completions = &spec["completions"];
    if !completions.is_null()
        && *completions != before["completions"]
        && *completions != spec["parallelism"]
    {
        let detail = "can only be modified in tandem with spec.parallelism";
        errors.push(Error::invalid(path, completions, detail));
    }
}

/// A suspended job without pods may still change where its pods go and what they get.
fn is_movable(job: &Value) -> bool {
    let status = &job["status"];
    let stopped = list(status, "conditions")
        .iter()
        .any(|it| text(it, "type") == "Suspended" && text(it, "status") == "True");
    job["spec"]["suspend"] == true
        && (status["startTime"].is_null() || stopped)
        && status["active"].as_i64().unwrap_or_default() == 0
}

/// A template without the fields for placement and pod identity.
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

pub(in crate::builtin::batch) fn job_spec(spec: &Value, path: &Path, errors: &mut ErrorList) {
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
    if !spec["maxFailedIndexes"].is_null() && spec["backoffLimitPerIndex"].is_null() {
        let detail = "when maxFailedIndexes is specified";
        errors.push(Error::required(&path.child("backoffLimitPerIndex"), detail));
    }
    if let Some(manager) = spec["managedBy"].as_str() {
        let at = path.child("managedBy");
        domain_prefixed_path(manager, &at, errors);
        if manager.len() > MAX_MANAGER {
            errors.push(Error::too_long(&at, MAX_MANAGER));
        }
    }
    completion(spec, path, errors);
    policies::failure(spec, &path.child("podFailurePolicy"), errors);
    policies::success(spec, &path.child("successPolicy"), errors);
    let supported: &[&str] = if spec["podFailurePolicy"].is_object() {
        &["Failed"]
    } else {
        &["Failed", "TerminatingOrFailed"]
    };
    one_of_set(
        &spec["podReplacementPolicy"],
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
    one_of_set(
        &spec["completionMode"],
        &["NonIndexed", "Indexed"],
        false,
        &at,
        errors,
    );
    if mode == "Indexed" {
        indexed(spec, path, errors);
    } else if matches!(mode, "" | "NonIndexed") {
        for key in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if !spec[key].is_null() {
                let detail = "requires indexed completion mode";
                errors.push(Error::invalid(&path.child(key), &spec[key], detail));
            }
        }
    }
}

fn indexed(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let number = |key: &str| spec[key].as_i64();
    let (completions, parallelism, failed) = (
        number("completions"),
        number("parallelism"),
        number("maxFailedIndexes"),
    );
    if completions.is_none() {
        let detail = "when completion mode is Indexed";
        errors.push(Error::required(&path.child("completions"), detail));
    }
    let mut at_most = |key: &str, found: Option<i64>, most: i64, why: &str| {
        if let Some(found) = found.filter(|found| *found > most) {
            let detail = format!("must be less than or equal to {why}");
            errors.push(Error::invalid(&path.child(key), found, detail));
        }
    };
    let why = format!("{MAX_PARALLELISM} when completion mode is Indexed");
    at_most("parallelism", parallelism, MAX_PARALLELISM, &why);
    let most = completions.unwrap_or(i64::MAX);
    at_most("maxFailedIndexes", failed, most, "completions");
    let why = MAX_PARALLELISM.to_string();
    at_most("maxFailedIndexes", failed, MAX_PARALLELISM, &why);
    let many = completions.is_some_and(|it| it > MANY_COMPLETIONS);
    if !many || spec["backoffLimitPerIndex"].is_null() {
        return;
    }
    let why = format!(
        "{MAX_OF_MANY} when completions are above {MANY_COMPLETIONS} and used with backoff limit per index"
    );
    at_most("parallelism", parallelism, MAX_OF_MANY, &why);
    at_most("maxFailedIndexes", failed, MAX_OF_MANY, &why);
    if failed.is_none() {
        let detail = format!("must be specified when completions is above {MANY_COMPLETIONS}");
        errors.push(Error::required(&path.child("maxFailedIndexes"), detail));
    }
}

fn template(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let at = path.child("template");
    pod::template(&spec["template"], &at, errors);
    let policy = text(&spec["template"]["spec"], "restartPolicy");
    let at = at.child("spec").child("restartPolicy");
    // Defaulting has set "Always".
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
