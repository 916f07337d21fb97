//! Limit ranges: defaults and bounds for the resources of containers and pods, and bounds for claims of volumes.

use std::collections::{BTreeMap, HashSet};

use allot_apimachinery::Quantity;
use allot_apimachinery::field::{MOST_TEXT, joined};
use serde_json::{Map, Value};

use super::Admission;
use super::{Attributes, Operation, forbidden, stored_in};
use crate::error::Result;
use crate::object::{child_mut, items, items_mut, meta, metadata_mut, text};

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

/// Fills in what containers of a pod leave open.
pub(super) async fn set_defaults(
    core: &Admission,
    attributes: &Attributes<'_>,
    pod: &mut Value,
) -> Result<()> {
    if !concerns(attributes) || !attributes.resource.is("", "pods") {
        return Ok(());
    }
    for range in &stored_in(core, "limitranges", attributes.namespace).await? {
        let mut notes = Vec::new();
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
            for container in items_mut(pod, &["spec", list]) {
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
        if !notes.is_empty() {
            metadata_mut(pod);
            let text = format!("LimitRanger plugin set: {}", notes.join("; "));
            child_mut(&mut pod["metadata"], "annotations")
                .insert(ANNOTATION.to_owned(), text.into());
        }
    }
    Ok(())
}

/// New pods, resized pods, and PersistentVolumeClaims, unless they are being deleted.
fn concerns(attributes: &Attributes<'_>) -> bool {
    let (create, update) = (
        attributes.operation == Operation::Create,
        attributes.operation == Operation::Update,
    );
    let whole = attributes.subresource.is_empty();
    let concerned = if attributes.resource.is("", "pods") {
        create && whole || update && attributes.subresource == "resize"
    } else {
        attributes.resource.is("", "persistentvolumeclaims") && whole && (create || update)
    };
    concerned
        && attributes
            .old
            .is_none_or(|old| meta(old, "deletionTimestamp").is_empty())
}

/// Refuses a pod or a claim of a volume outside of the bounds.
pub(super) async fn check(
    core: &Admission,
    attributes: &Attributes<'_>,
    object: &Value,
) -> Result<()> {
    if !concerns(attributes) {
        return Ok(());
    }
    for range in stored_in(core, "limitranges", attributes.namespace).await? {
        let mut errors = Complaints::default();
        for item in items(&range["spec"]["limits"]) {
            let kind = item["type"].as_str().unwrap_or_default();
            match (attributes.resource.plural.as_str(), kind) {
                ("pods", "Container") => {
                    for list in ["containers", "initContainers"] {
                        for container in items(&object["spec"][list]) {
                            let resources = &container["resources"];
                            let own = Resources {
                                requests: amounts(&resources["requests"]),
                                limits: amounts(&resources["limits"]),
                            };
                            bounds(item, kind, &own, &mut errors);
                        }
                    }
                }
                ("pods", "Pod") => {
                    let total = Resources {
                        requests: pod_total(object, "requests"),
                        limits: pod_total(object, "limits"),
                    };
                    bounds(item, kind, &total, &mut errors);
                }
                ("persistentvolumeclaims", "PersistentVolumeClaim") => {
                    let own = Resources {
                        requests: amounts(&object["spec"]["resources"]["requests"]),
                        limits: Amounts::new(),
                    };
                    claim_bounds(item, kind, &own, &mut errors);
                }
                _ => {}
            }
        }
        if let Some(errors) = joined(&errors.texts) {
            return Err(forbidden(attributes, &errors));
        }
    }
    Ok(())
}

/// Requests or limits of a whole pod, without its overhead.
fn pod_total(pod: &Value, field: &str) -> Amounts {
    let mut total = allot_model::quota::of_containers(pod, field);
    let own = amounts(&pod["spec"]["resources"][field]);
    total.extend(
        own.into_iter()
            .filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory")),
    );
    total
}

/// What is out of bounds. An error that several containers have is kept once, and texts only up to the length of an answer.
#[derive(Default)]
struct Complaints {
    texts: Vec<String>,
    known: HashSet<String>,
    length: usize,
}

impl Complaints {
    fn push(&mut self, text: String) {
        if self.length < MOST_TEXT && self.known.insert(text.clone()) {
            self.length += text.len();
            self.texts.push(text);
        }
    }
}

/// Requests and limits.
struct Resources {
    requests: Amounts,
    limits: Amounts,
}

fn bounds(item: &Value, kind: &str, resources: &Resources, errors: &mut Complaints) {
    minima(item, kind, resources, errors);
    let Resources { requests, limits } = resources;
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
        let (request, limit) = comparable(requests.get(&name), limits.get(&name), &ratio);
        let Some(request) = request else {
            errors.push(format!(
                "{text}, but no request is specified or request is 0"
            ));
            continue;
        };
        let Some(limit) = limit else {
            errors.push(format!("{text}, but no limit is specified or limit is 0"));
            continue;
        };
        let found = limit as f64 / request as f64;
        if found > ratio.milli_value() as f64 / 1000.0 {
            errors.push(format!("{text}, but provided ratio is {found:.6}"));
        }
    }
}

fn minima(item: &Value, kind: &str, resources: &Resources, errors: &mut Complaints) {
    let Resources { requests, limits } = resources;
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
}

/// Request and limit as numbers that can be compared, without those that are zero. Upstream's
/// `requestLimitEnforcedValues`: in thousandths, unless that is too large for 64 bits.
fn comparable(
    request: Option<&Quantity>,
    limit: Option<&Quantity>,
    ratio: &Quantity,
) -> (Option<i64>, Option<i64>) {
    const MOST: i64 = i64::MAX / 1000;
    let all = [request, limit, Some(ratio)];
    let fine = all.into_iter().flatten().all(|it| it.value() <= MOST);
    let number = |it: &Quantity| if fine { it.milli_value() } else { it.value() };
    let number = |it: Option<&Quantity>| it.map(number).filter(|it| *it != 0);
    (number(request), number(limit))
}

/// A claim of a volume has no limits.
fn claim_bounds(item: &Value, kind: &str, resources: &Resources, errors: &mut Complaints) {
    minima(item, kind, resources, errors);
    for (name, most) in amounts(&item["max"]) {
        let text = format!("maximum {name} usage per {kind} is {most}");
        match resources.requests.get(&name) {
            None => errors.push(format!("{text}.  No request is specified")),
            Some(request) if *request > most => {
                errors.push(format!("{text}, but request is {request}"));
            }
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(request: &str, limit: &str, refused: bool) {
        let item = json!({"type": "Container", "maxLimitRequestRatio": {"memory": "2"}});
        let own = Resources {
            requests: amounts(&json!({"memory": request})),
            limits: amounts(&json!({"memory": limit})),
        };
        let mut errors = Complaints::default();
        bounds(&item, "Container", &own, &mut errors);
        assert_eq!(
            !errors.texts.is_empty(),
            refused,
            "{request} {limit}: {:?}",
            errors.texts
        );
    }

    /// Amounts that are too large in thousandths were taken for equal ones.
    #[test]
    fn regression_the_ratio_of_very_large_amounts_is_checked() {
        check("1Gi", "2Gi", false);
        check("1Gi", "3Gi", true);
        check("16Pi", "32Pi", false);
        check("16Pi", "64Pi", true);
        check("1", "16Pi", true);
        check("500m", "1", false);
    }
}
