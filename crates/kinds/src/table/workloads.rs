//! Rows of workload controllers.

use serde_json::{Value, json};

use super::{age, since};
use crate::object::{meta, text};
use crate::table::format::{containers, label_selector, labels, number, with_template};

pub(crate) fn job(object: &Value) -> Vec<Value> {
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
        text(status, &["startTime"]),
        text(status, &["completionTime"]),
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
    with_template(object, cells, label_selector(&spec["selector"]))
}

pub(crate) fn cron_job(object: &Value) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let last = match text(status, &["lastScheduleTime"]) {
        "" => "<none>".to_owned(),
        time => since(time),
    };
    let zone = spec["timeZone"].as_str().unwrap_or("<none>");
    let (names, images) = containers(&spec["jobTemplate"]["spec"]["template"]["spec"]);
    vec![
        json!(meta(object, "name")),
        json!(text(spec, &["schedule"])),
        json!(zone),
        json!(match spec["suspend"].as_bool() {
            Some(true) => "True",
            _ => "False",
        }),
        json!(status["active"].as_array().map_or(0, Vec::len)),
        json!(last),
        age(object),
        json!(names),
        json!(images),
        json!(label_selector(&spec["jobTemplate"]["spec"]["selector"])),
    ]
}

pub(crate) fn pod_template(object: &Value) -> Vec<Value> {
    let (names, images) = containers(&object["template"]["spec"]);
    let pod_labels = labels(&object["template"]["metadata"]["labels"]);
    vec![
        json!(meta(object, "name")),
        json!(names),
        json!(images),
        json!(pod_labels),
    ]
}
