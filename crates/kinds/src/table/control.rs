//! Rows of what steers the server itself: access, admission, fairness.

use serde_json::{Value, json};

use super::age;
use crate::object::{items, text};
use crate::table::format::name;

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
