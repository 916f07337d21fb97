//! Component statuses, which are read-only and deprecated.

use serde_json::Value;

use crate::registry::{Builtin, CLUSTER, READ, Rules};

pub(super) static COMPONENT_STATUS: Builtin = Builtin {
    kind: "ComponentStatus",
    plural: "componentstatuses",
    short: &["cs"],
    verbs: READ,
    deprecated: &[("v1", "v1.19", "", "")],
    rules: Rules {
        missing: "componentstatus",
        table: Some(("Name|Status|Message|Error", row)),
        ..Rules::DEFAULT
    },
    ..CLUSTER
};

fn row(component: &Value) -> Vec<Value> {
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
