//! Rows of what steers the server itself: access, admission, fairness.

use serde_json::{Value, json};

use super::age;
use crate::object::{items, text};
use crate::table::format::name;

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
