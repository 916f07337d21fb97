//! Limit ranges: defaults and bounds for the resources of containers and pods.

use std::collections::BTreeMap;

use allot_apimachinery::Quantity;
use serde_json::{Map, Value};

use super::{Attributes, Operation, forbidden, stored_in};
use crate::error::Result;
use crate::object::{child_mut, metadata_mut, text};
use crate::server::Core;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

type Amounts = BTreeMap<String, Quantity>;

fn amounts(value: &Value) -> Amounts {
    let parse = |value: &Value| match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    };
    value
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.clone(), parse(value)?)))
        .collect()
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Fills in what containers leave open.
pub(super) async fn set_defaults(
    core: &Core,
    attributes: &Attributes<'_>,
    pod: &mut Value,
) -> Result<()> {
    let ranges = stored_in(core, "limitranges", attributes.namespace).await?;
    let mut notes = Vec::new();
    for range in &ranges {
        let (mut requests, mut limits) = (Map::new(), Map::new());
        for item in items(&range["spec"]["limits"])
            .iter()
            .filter(|item| item["type"] == "Container")
        {
            requests.extend(
                item["defaultRequest"]
                    .as_object()
                    .cloned()
                    .unwrap_or_default(),
            );
            limits.extend(item["default"].as_object().cloned().unwrap_or_default());
        }
        for (list, title) in [
            ("containers", "container"),
            ("initContainers", "init container"),
        ] {
            for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
                let name = text(container, &["name"]).to_owned();
                for (key, word, defaults) in [
                    ("requests", "request", &requests),
                    ("limits", "limit", &limits),
                ] {
                    if defaults.is_empty() {
                        continue;
                    }
                    child_mut(container, "resources");
                    let target = child_mut(&mut container["resources"], key);
                    let mut set = Vec::new();
                    for (resource, amount) in defaults {
                        if !target.contains_key(resource) {
                            target.insert(resource.clone(), amount.clone());
                            set.push(resource.clone());
                        }
                    }
                    if !set.is_empty() {
                        notes.push(format!("{} {word} for {title} {name}", set.join(", ")));
                    }
                }
            }
        }
    }
    if !notes.is_empty() {
        metadata_mut(pod);
        let text = format!("LimitRanger plugin set: {}", notes.join("; "));
        child_mut(&mut pod["metadata"], "annotations").insert(ANNOTATION.to_owned(), text.into());
    }
    Ok(())
}

/// Refuses a pod outside of the bounds.
pub(super) async fn check(core: &Core, attributes: &Attributes<'_>, pod: &Value) -> Result<()> {
    if attributes.operation != Operation::Create || !attributes.subresource.is_empty() {
        return Ok(());
    }
    let mut errors = Vec::new();
    for range in stored_in(core, "limitranges", attributes.namespace).await? {
        for item in items(&range["spec"]["limits"]) {
            match item["type"].as_str() {
                Some("Container") => {
                    for list in ["containers", "initContainers"] {
                        for container in items(&pod["spec"][list]) {
                            bounds(item, "Container", &container["resources"], &mut errors);
                        }
                    }
                }
                Some("Pod") => bounds(item, "Pod", &pod_total(pod), &mut errors),
                _ => {}
            }
        }
    }
    match errors.as_slice() {
        [] => Ok(()),
        [one] => Err(forbidden(attributes, one)),
        many => Err(forbidden(attributes, &format!("[{}]", many.join(", ")))),
    }
}

/// Requests and limits of a whole pod.
fn pod_total(pod: &Value) -> Value {
    let mut total = serde_json::json!({"requests": {}, "limits": {}});
    for key in ["requests", "limits"] {
        let mut sum = Amounts::new();
        for container in items(&pod["spec"]["containers"]) {
            for (name, amount) in amounts(&container["resources"][key]) {
                let known = sum.remove(&name).unwrap_or_default();
                sum.insert(name, known.checked_add(&amount).unwrap_or(amount));
            }
        }
        for container in items(&pod["spec"]["initContainers"]) {
            for (name, amount) in amounts(&container["resources"][key]) {
                let larger = match sum.remove(&name) {
                    Some(known) if known > amount => known,
                    _ => amount,
                };
                sum.insert(name, larger);
            }
        }
        for (name, amount) in sum {
            total[key][name] = amount.to_string().into();
        }
    }
    total
}

fn bounds(item: &Value, kind: &str, resources: &Value, errors: &mut Vec<String>) {
    let (requests, limits) = (
        amounts(&resources["requests"]),
        amounts(&resources["limits"]),
    );
    for (name, least) in amounts(&item["min"]) {
        let text = format!("minimum {name} usage per {kind} is {least}");
        match (requests.get(&name), limits.get(&name)) {
            (None, _) => errors.push(format!("{text}.  No request is specified")),
            (Some(request), _) if *request < least => {
                errors.push(format!("{text}, but request is {request}"))
            }
            (_, Some(limit)) if *limit < least => {
                errors.push(format!("{text}, but limit is {limit}"))
            }
            _ => {}
        }
    }
    for (name, most) in amounts(&item["max"]) {
        let text = format!("maximum {name} usage per {kind} is {most}");
        match (limits.get(&name), requests.get(&name)) {
            (None, _) => errors.push(format!("{text}.  No limit is specified")),
            (Some(limit), _) if *limit > most => {
                errors.push(format!("{text}, but limit is {limit}"))
            }
            (_, Some(request)) if *request > most => {
                errors.push(format!("{text}, but request is {request}"))
            }
            _ => {}
        }
    }
    for (name, ratio) in amounts(&item["maxLimitRequestRatio"]) {
        let text = format!("{name} max limit to request ratio per {kind} is {ratio}");
        let (limit, request) = (limits.get(&name), requests.get(&name));
        let (Some(limit), Some(request)) = (limit, request.filter(|it| it.milli_value() != 0))
        else {
            errors.push(format!(
                "{text}, but no request is specified or request is 0"
            ));
            continue;
        };
        let found = limit.milli_value() as f64 / request.milli_value() as f64;
        if found > ratio.milli_value() as f64 / 1000.0 {
            errors.push(format!("{text}, but provided ratio is {found:.6}"));
        }
    }
}
