//! Rows of what steers the server itself: access, admission, fairness.

use serde_json::{Value, json};

use super::age;
use crate::object::{items, text};
use crate::table::format::{name, or_none};

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
