//! Flow schemas.

use serde_json::{Value, json};

use super::FLOW;
use crate::object;
use crate::registry::{Builtin, Rules};
use crate::table::age;
use crate::table::format::{name, number};

mod validation;

pub(super) static FLOW_SCHEMA: Builtin = Builtin {
    kind: "FlowSchema",
    plural: "flowschemas",
    rules: Rules {
        validate: validation::validate,
        row_order: Some(row_order),
        table: Some((
            "Name|PriorityLevel|MatchingPrecedence|DistinguisherMethod|Age|MissingPL",
            row,
        )),
        ..FLOW.rules
    },
    ..FLOW
};

/// Flow schemas are shown in the order in which they are tried.
fn row_order(object: &Value) -> (i64, &str) {
    let precedence = &object["spec"]["matchingPrecedence"];
    let name = object::text(object, &["metadata", "name"]);
    (precedence.as_i64().unwrap_or_default(), name)
}

fn row(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let dangling = conditions.find(|condition| condition["type"] == "Dangling");
    let dangling = dangling.and_then(|condition| condition["status"].as_str());
    vec![
        name(object),
        json!(object::text(spec, &["priorityLevelConfiguration", "name"])),
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
