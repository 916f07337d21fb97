//! Controllers of pods.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::labels::LabelSelector;
use serde_json::Value;

use super::{int_or_percent, label_selector, not_negative, one_of, pod, schedule, text};

/// Checks a new or changed object of apps or batch.
pub(super) fn validate(group: &str, plural: &str, object: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    match (group, plural) {
        ("", "replicationcontrollers") => {
            not_negative(&spec["replicas"], &path.child("replicas"), errors);
            if spec["selector"]
                .as_object()
                .is_none_or(serde_json::Map::is_empty)
            {
                errors.push(Error::required(&path.child("selector"), ""));
            }
            controller_template(spec, &path, errors);
        }
        ("apps", "deployments") => {
            not_negative(&spec["replicas"], &path.child("replicas"), errors);
            selector(spec, &path, errors);
            template(spec, &path, errors);
            strategy(&spec["strategy"], &path.child("strategy"), errors);
            for key in [
                "minReadySeconds",
                "revisionHistoryLimit",
                "progressDeadlineSeconds",
            ] {
                not_negative(&spec[key], &path.child(key), errors);
            }
            let ready = spec["minReadySeconds"].as_i64().unwrap_or_default();
            if let Some(deadline) = spec["progressDeadlineSeconds"]
                .as_i64()
                .filter(|deadline| *deadline <= ready)
            {
                let detail = "must be greater than minReadySeconds";
                errors.push(Error::invalid(
                    &path.child("progressDeadlineSeconds"),
                    deadline,
                    detail,
                ));
            }
        }
        ("apps", "replicasets") => {
            not_negative(&spec["replicas"], &path.child("replicas"), errors);
            not_negative(
                &spec["minReadySeconds"],
                &path.child("minReadySeconds"),
                errors,
            );
            selector(spec, &path, errors);
            template(spec, &path, errors);
        }
        ("apps", "daemonsets") => {
            selector(spec, &path, errors);
            template(spec, &path, errors);
            not_negative(
                &spec["minReadySeconds"],
                &path.child("minReadySeconds"),
                errors,
            );
            let kinds = ["RollingUpdate", "OnDelete"];
            let at = path.child("updateStrategy").child("type");
            one_of(
                text(&spec["updateStrategy"], "type"),
                &kinds,
                true,
                &at,
                errors,
            );
            not_negative(
                &spec["revisionHistoryLimit"],
                &path.child("revisionHistoryLimit"),
                errors,
            );
        }
        ("apps", "statefulsets") => {
            let policies = ["OrderedReady", "Parallel"];
            let at = path.child("podManagementPolicy");
            one_of(
                text(spec, "podManagementPolicy"),
                &policies,
                true,
                &at,
                errors,
            );
            let kinds = ["RollingUpdate", "OnDelete"];
            let at = path.child("updateStrategy").child("type");
            one_of(
                text(&spec["updateStrategy"], "type"),
                &kinds,
                true,
                &at,
                errors,
            );
            not_negative(&spec["replicas"], &path.child("replicas"), errors);
            not_negative(
                &spec["minReadySeconds"],
                &path.child("minReadySeconds"),
                errors,
            );
            selector(spec, &path, errors);
            template(spec, &path, errors);
        }
        ("batch", "jobs") => job(spec, &path, errors),
        ("batch", "cronjobs") => cron_job(spec, &path, errors),
        _ => {}
    }
}

/// Checks a change of an object of apps.
pub(super) fn validate_update(plural: &str, object: &Value, old: &Value, errors: &mut ErrorList) {
    let (spec, before, path) = (&object["spec"], &old["spec"], Path::new("spec"));
    if plural == "statefulsets" {
        validate("apps", plural, object, errors);
        const CHANGEABLE: [&str; 8] = [
            "replicas",
            "ordinals",
            "template",
            "updateStrategy",
            "revisionHistoryLimit",
            "persistentVolumeClaimRetentionPolicy",
            "minReadySeconds",
            "status",
        ];
        let fixed = |spec: &Value| {
            let mut map = spec.as_object().cloned().unwrap_or_default();
            map.retain(|key, _| !CHANGEABLE.contains(&key.as_str()));
            map
        };
        if fixed(spec) != fixed(before) {
            let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
            errors.push(Error::forbidden(&path, detail));
        }
        return;
    }
    validate("apps", plural, object, errors);
    if plural != "controllerrevisions" && spec["selector"] != before["selector"] {
        errors.push(Error::invalid(
            &path.child("selector"),
            &spec["selector"],
            "field is immutable",
        ));
    }
    if plural == "controllerrevisions" && object["data"] != old["data"] {
        errors.push(Error::invalid(
            &Path::new("data"),
            &object["data"],
            "field is immutable",
        ));
    }
}

/// Checks a change of a job.
pub(super) fn validate_job_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    let (spec, before, path) = (&object["spec"], &old["spec"], Path::new("spec"));
    validate("batch", "jobs", object, errors);
    for key in [
        "selector",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        if spec[key] != before[key] {
            errors.push(Error::invalid(
                &path.child(key),
                &spec[key],
                "field is immutable",
            ));
        }
    }
    let elastic =
        text(spec, "completionMode") == "Indexed" && spec["completions"] == spec["parallelism"];
    if spec["completions"] != before["completions"] && !elastic {
        errors.push(Error::invalid(
            &path.child("completions"),
            &spec["completions"],
            "field is immutable",
        ));
    }
    if spec["template"] != before["template"] && before["suspend"] != true {
        errors.push(Error::invalid(
            &path.child("template"),
            &spec["template"],
            "field is immutable",
        ));
    }
}

fn selector(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let at = path.child("selector");
    if !spec["selector"].is_object() {
        errors.push(Error::required(&at, ""));
        return;
    }
    label_selector(&spec["selector"], &at, errors);
    let empty = |key: &str| match &spec["selector"][key] {
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => true,
    };
    if empty("matchLabels") && empty("matchExpressions") {
        let detail = "empty selector is invalid for deployment";
        errors.push(Error::invalid(&at, &spec["selector"], detail));
    }
}

fn template(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let at = path.child("template");
    let labels = crate::object::string_map(&spec["template"]["metadata"]["labels"]);
    let matches = spec["selector"].is_object()
        && LabelSelector::from_json(&spec["selector"])
            .ok()
            .and_then(|selector| selector.to_selector().ok())
            .is_some_and(|selector| selector.matches(&labels));
    if !matches {
        let detail = "`selector` does not match template `labels`";
        let shown = &spec["template"]["metadata"]["labels"];
        errors.push(Error::invalid(
            &at.child("metadata").child("labels"),
            shown,
            detail,
        ));
    }
    pod::template(&spec["template"], &at, errors);
    always_restart(spec, &at, errors);
}

fn controller_template(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let at = path.child("template");
    if !spec["template"].is_object() {
        errors.push(Error::required(&at, ""));
        return;
    }
    let labels = &spec["template"]["metadata"]["labels"];
    let matches =
        super::entries(spec, "selector").all(|(key, value)| labels.get(key) == Some(value));
    if !matches {
        let detail = "`selector` does not match template `labels`";
        errors.push(Error::invalid(
            &at.child("metadata").child("labels"),
            labels,
            detail,
        ));
    }
    pod::template(&spec["template"], &at, errors);
    always_restart(spec, &at, errors);
}

fn always_restart(spec: &Value, at: &Path, errors: &mut ErrorList) {
    let pod = &spec["template"]["spec"];
    let policy = text(pod, "restartPolicy");
    if policy != "Always" && ["OnFailure", "Never"].contains(&policy) {
        errors.push(Error::not_supported(
            &at.child("spec").child("restartPolicy"),
            policy,
            &["Always"],
        ));
    }
    if pod["activeDeadlineSeconds"].is_i64() {
        let detail = "activeDeadlineSeconds in ReplicaSet is not Supported";
        errors.push(Error::forbidden(
            &at.child("spec").child("activeDeadlineSeconds"),
            detail,
        ));
    }
}

fn strategy(strategy: &Value, path: &Path, errors: &mut ErrorList) {
    let kind = text(strategy, "type");
    match kind {
        "Recreate" => {
            if strategy["rollingUpdate"].is_object() {
                let detail = "may not be specified when strategy `type` is 'Recreate'";
                errors.push(Error::forbidden(&path.child("rollingUpdate"), detail));
            }
        }
        "RollingUpdate" => {
            let (rolling, at) = (&strategy["rollingUpdate"], path.child("rollingUpdate"));
            for key in ["maxUnavailable", "maxSurge"] {
                int_or_percent(&rolling[key], &at.child(key), errors);
            }
            let zero = |key: &str| matches!(rolling[key].as_i64(), Some(0)) || rolling[key] == "0%";
            if zero("maxUnavailable") && zero("maxSurge") {
                let detail = "may not be 0 when `maxSurge` is 0";
                errors.push(Error::invalid(
                    &at.child("maxUnavailable"),
                    &rolling["maxUnavailable"],
                    detail,
                ));
            }
        }
        other => {
            let known = ["Recreate", "RollingUpdate"];
            errors.push(Error::not_supported(&path.child("type"), other, &known));
        }
    }
}

fn job(spec: &Value, path: &Path, errors: &mut ErrorList) {
    for key in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
    ] {
        not_negative(&spec[key], &path.child(key), errors);
    }
    let modes = ["NonIndexed", "Indexed"];
    one_of(
        text(spec, "completionMode"),
        &modes,
        false,
        &path.child("completionMode"),
        errors,
    );
    if text(spec, "completionMode") == "Indexed" && spec["completions"].is_null() {
        let detail = "when completion mode is Indexed";
        errors.push(Error::required(&path.child("completions"), detail));
    }
    if spec["selector"].is_object() {
        label_selector(&spec["selector"], &path.child("selector"), errors);
    }
    job_template(&spec["template"], &path.child("template"), errors);
}

fn job_template(template: &Value, path: &Path, errors: &mut ErrorList) {
    pod::template(template, path, errors);
    let policy = text(&template["spec"], "restartPolicy");
    // The defaults of pods have made "Always" of nothing.
    if policy == "Always" || policy.is_empty() {
        let at = path.child("spec").child("restartPolicy");
        errors.push(Error::required(
            &at,
            "valid values: \"OnFailure\", \"Never\"",
        ));
    }
}

fn cron_job(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let schedule = text(spec, "schedule");
    if schedule.is_empty() {
        errors.push(Error::required(&path.child("schedule"), ""));
    } else if schedule.contains("TZ") {
        let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        errors.push(Error::invalid(&path.child("schedule"), schedule, detail));
    } else if let Some(error) = schedule::error(schedule) {
        errors.push(Error::invalid(&path.child("schedule"), schedule, error));
    }
    for key in [
        "startingDeadlineSeconds",
        "successfulJobsHistoryLimit",
        "failedJobsHistoryLimit",
    ] {
        not_negative(&spec[key], &path.child(key), errors);
    }
    let policies = ["Allow", "Forbid", "Replace"];
    one_of(
        text(spec, "concurrencyPolicy"),
        &policies,
        true,
        &path.child("concurrencyPolicy"),
        errors,
    );
    let at = path.child("jobTemplate").child("spec");
    let inner = &spec["jobTemplate"]["spec"];
    job_template(&inner["template"], &at.child("template"), errors);
    for key in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
    ] {
        not_negative(&inner[key], &at.child(key), errors);
    }
}
