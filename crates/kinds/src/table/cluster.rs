//! Rows of nodes, namespaces, events, configuration and quotas.

use serde_json::{Value, json};

use super::{age, since};
use crate::object::{items, string_map, text};
use crate::table::format::{name, or_none};

pub(crate) fn node(object: &Value) -> Vec<Value> {
    let ready = items(&object["status"]["conditions"])
        .iter()
        .find(|it| it["type"] == "Ready");
    let mut status = vec![match ready.map(|it| it["status"] == "True") {
        Some(true) => "Ready",
        Some(false) => "NotReady",
        None => "Unknown",
    }];
    if object["spec"]["unschedulable"] == true {
        status.push("SchedulingDisabled");
    }
    let mut roles: Vec<String> = string_map(&object["metadata"]["labels"])
        .into_iter()
        .filter_map(
            |(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
                Some(role) => Some(role.to_owned()).filter(|role| !role.is_empty()),
                None if key == "kubernetes.io/role" && !value.is_empty() => Some(value),
                None => None,
            },
        )
        .collect();
    roles.sort();
    let address = |kind: &str| {
        let found = items(&object["status"]["addresses"])
            .iter()
            .find(|it| it["type"] == kind);
        or_none(
            found
                .and_then(|it| it["address"].as_str())
                .unwrap_or_default()
                .to_owned(),
        )
    };
    let info = |key: &str| {
        let value = text(object, &["status", "nodeInfo", key]);
        if value.is_empty() {
            "<unknown>".to_owned()
        } else {
            value.to_owned()
        }
    };
    let kernel = match (
        info("kernelVersion"),
        text(object, &["status", "nodeInfo", "architecture"]),
    ) {
        (kernel, "") => kernel,
        (kernel, architecture) => format!("{kernel} ({architecture})"),
    };
    vec![
        name(object),
        json!(status.join(",")),
        json!(or_none(roles.join(","))),
        age(object),
        json!(text(object, &["status", "nodeInfo", "kubeletVersion"])),
        json!(address("InternalIP")),
        json!(address("ExternalIP")),
        json!(info("osImage")),
        json!(kernel),
        json!(info("containerRuntimeVersion")),
    ]
}

pub(crate) fn component_status(component: &Value) -> Vec<Value> {
    let healthy = component["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "Healthy");
    let status = match healthy.map(|condition| condition["status"] == "True") {
        None => "Unknown",
        Some(true) => "Healthy",
        Some(false) => "Unhealthy",
    };
    let part = |key: &str| healthy.map_or("", |it| it[key].as_str().unwrap_or_default());
    let name = component["metadata"]["name"].as_str().unwrap_or_default();
    let cells = [name, status, part("message"), part("error")];
    cells.map(Value::from).into()
}

pub(crate) fn namespace(object: &Value) -> Vec<Value> {
    vec![
        name(object),
        json!(text(object, &["status", "phase"])),
        age(object),
    ]
}

pub(crate) fn event(object: &Value) -> Vec<Value> {
    let involved = if object["regarding"].is_object() {
        &object["regarding"]
    } else {
        &object["involvedObject"]
    };
    let first = [
        text(object, &["firstTimestamp"]),
        text(object, &["eventTime"]),
    ];
    let first = first
        .into_iter()
        .find(|time| !time.is_empty())
        .unwrap_or_default();
    let last = match (
        text(object, &["series", "lastObservedTime"]),
        text(object, &["lastTimestamp"]),
    ) {
        ("", "") => first,
        ("", last) => last,
        (observed, _) => observed,
    };
    let count = object["series"]["count"]
        .as_i64()
        .or(object["count"].as_i64())
        .filter(|count| *count != 0)
        .unwrap_or(1);
    let component = [
        text(object, &["source", "component"]),
        text(object, &["reportingComponent"]),
    ];
    let component = component
        .into_iter()
        .find(|it| !it.is_empty())
        .unwrap_or_default();
    let host = [
        text(object, &["source", "host"]),
        text(object, &["reportingInstance"]),
    ];
    let host = host
        .into_iter()
        .find(|it| !it.is_empty())
        .unwrap_or_default();
    let source = [component, host]
        .into_iter()
        .filter(|it| !it.is_empty())
        .collect::<Vec<_>>()
        .join(", ");
    let target = text(involved, &["kind"]).to_lowercase();
    let target = match text(involved, &["name"]) {
        "" => target,
        name => format!("{target}/{name}"),
    };
    vec![
        json!(since(last)),
        json!(text(object, &["type"])),
        json!(text(object, &["reason"])),
        json!(target),
        json!(text(involved, &["fieldPath"])),
        json!(source),
        json!(text(object, &["message"]).trim()),
        json!(since(first)),
        json!(count),
        name(object),
    ]
}

pub(crate) fn secret(object: &Value) -> Vec<Value> {
    let count = object["data"].as_object().map_or(0, serde_json::Map::len);
    vec![
        name(object),
        json!(text(object, &["type"])),
        json!(count),
        age(object),
    ]
}

pub(crate) fn config_map(object: &Value) -> Vec<Value> {
    let count = ["data", "binaryData"]
        .iter()
        .map(|key| object[*key].as_object().map_or(0, serde_json::Map::len))
        .sum::<usize>();
    vec![name(object), json!(count), age(object)]
}

pub(crate) fn service_account(object: &Value) -> Vec<Value> {
    vec![name(object), age(object)]
}

pub(crate) fn quota(object: &Value) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (resource, hard) in string_map(&object["status"]["hard"]) {
        let used = object["status"]["used"][&resource]
            .as_str()
            .unwrap_or("0")
            .to_owned();
        let shown = format!("{resource}: {used}/{hard}");
        if resource.starts_with("limits.") {
            limits.push(shown)
        } else {
            requests.push(shown)
        }
    }
    vec![
        name(object),
        json!(requests.join(", ")),
        json!(limits.join(", ")),
        age(object),
    ]
}
