//! Rows of what steers the server itself: access, admission, fairness.

use serde_json::{Value, json};

use super::age;
use super::format::{name, number, or_none};
use crate::object::{items, text};

fn subjects(object: &Value) -> [String; 3] {
    let of = |kind: &str| {
        items(&object["subjects"])
            .iter()
            .filter(|it| it["kind"] == kind)
            .map(|it| match it["namespace"].as_str() {
                Some(namespace) if kind == "ServiceAccount" => {
                    format!("{namespace}/{}", it["name"].as_str().unwrap_or_default())
                }
                _ => it["name"].as_str().unwrap_or_default().to_owned(),
            })
            .collect::<Vec<_>>()
            .join(", ")
    };
    [of("User"), of("Group"), of("ServiceAccount")]
}

pub(crate) fn role_binding(object: &Value) -> Vec<Value> {
    let role = format!(
        "{}/{}",
        text(object, &["roleRef", "kind"]),
        text(object, &["roleRef", "name"])
    );
    let [users, groups, accounts] = subjects(object);
    vec![
        name(object),
        json!(role),
        age(object),
        json!(users),
        json!(groups),
        json!(accounts),
    ]
}

pub(crate) fn csr(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    let (mut approved, mut denied, mut failed) = (false, false, false);
    for condition in items(&object["status"]["conditions"]) {
        match condition["type"].as_str() {
            Some("Approved") => approved = true,
            Some("Denied") => denied = true,
            Some("Failed") => failed = true,
            _ => {}
        }
    }
    let mut state = vec![if denied {
        "Denied"
    } else if approved {
        "Approved"
    } else {
        "Pending"
    }];
    if failed {
        state.push("Failed");
    }
    if !text(object, &["status", "certificate"]).is_empty() {
        state.push("Issued");
    }
    let duration = spec["expirationSeconds"]
        .as_i64()
        .map_or("<none>".to_owned(), allot_model::table::human_duration);
    vec![
        name(object),
        age(object),
        json!(or_none(text(spec, &["signerName"]).to_owned())),
        json!(text(spec, &["username"])),
        json!(duration),
        json!(state.join(",")),
    ]
}

pub(crate) fn webhooks(object: &Value) -> Vec<Value> {
    vec![
        name(object),
        json!(items(&object["webhooks"]).len()),
        age(object),
    ]
}

pub(crate) fn admission_policy(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    let count = items(&spec["validations"]).len() + items(&spec["mutations"]).len();
    let kind = match &spec["paramKind"] {
        Value::Null => "<unset>".to_owned(),
        kind => format!("{}/{}", text(kind, &["apiVersion"]), text(kind, &["kind"])),
    };
    vec![name(object), json!(count), json!(kind), age(object)]
}

pub(crate) fn admission_binding(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    let reference = match &spec["paramRef"] {
        Value::Null => "<unset>".to_owned(),
        value => match (text(value, &["namespace"]), text(value, &["name"])) {
            ("", name) => name.to_owned(),
            (namespace, name) => format!("{namespace}/{name}"),
        },
    };
    vec![
        name(object),
        json!(text(spec, &["policyName"])),
        json!(reference),
        age(object),
    ]
}

/// Flow schemas are shown in the order in which they are tried.
pub(crate) fn flow_schema_place(object: &Value) -> (i64, &str) {
    let precedence = &object["spec"]["matchingPrecedence"];
    let name = text(object, &["metadata", "name"]);
    (precedence.as_i64().unwrap_or_default(), name)
}

pub(crate) fn flow_schema(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let dangling = conditions.find(|condition| condition["type"] == "Dangling");
    let dangling = dangling.and_then(|condition| condition["status"].as_str());
    vec![
        name(object),
        json!(text(spec, &["priorityLevelConfiguration", "name"])),
        number(&spec["matchingPrecedence"]),
        json!(
            spec["distinguisherMethod"]["type"]
                .as_str()
                .unwrap_or("<none>")
        ),
        age(object),
        json!(dangling.unwrap_or("?")),
    ]
}

pub(crate) fn priority_level(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    let limited = &spec["limited"];
    let queuing = &limited["limitResponse"]["queuing"];
    let shown = |value: &Value| match value.as_i64() {
        Some(value) => json!(value),
        None => json!("<none>"),
    };
    vec![
        name(object),
        json!(text(spec, &["type"])),
        shown(&limited["nominalConcurrencyShares"]),
        shown(&queuing["queues"]),
        shown(&queuing["handSize"]),
        shown(&queuing["queueLengthLimit"]),
        age(object),
    ]
}

pub(crate) fn api_service(object: &Value) -> Vec<Value> {
    let service = match &object["spec"]["service"] {
        Value::Null => "Local".to_owned(),
        service => format!(
            "{}/{}",
            text(service, &["namespace"]),
            text(service, &["name"])
        ),
    };
    let available = items(&object["status"]["conditions"])
        .iter()
        .find(|it| it["type"] == "Available");
    let available = available.map_or("Unknown", |it| it["status"].as_str().unwrap_or("Unknown"));
    vec![name(object), json!(service), json!(available), age(object)]
}
