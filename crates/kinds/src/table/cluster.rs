//! Rows of nodes, namespaces, events, configuration and quotas.

use serde_json::{Value, json};

use super::age;
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
