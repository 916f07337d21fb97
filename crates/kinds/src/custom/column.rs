//! Printer columns.

use serde_json::{Value, json};

use super::{json_path, text};
/// A printer column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Title.
    pub name: String,
    /// `string`, `integer`, `date`, ….
    pub kind: String,
    /// Format within the kind.
    pub format: String,
    /// What clients show to explain the column.
    pub description: String,
    /// The priority: 0 is always shown, others only in wide output.
    pub priority: i64,
}

/// A column and the source of its cells.
#[derive(Debug)]
pub(super) struct CustomColumn {
    header: Column,
    path: String,
}

/// The columns of a version; the age if it declares none.
pub(super) fn columns(declared: &Value) -> Vec<CustomColumn> {
    let age = json!([{
        "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp",
        "description": "Time since the object was created.",
    }]);
    let declared = if declared.as_array().is_none_or(Vec::is_empty) {
        &age
    } else {
        declared
    };
    declared
        .as_array()
        .into_iter()
        .flatten()
        .map(|column| CustomColumn {
            header: Column {
                name: text(column, "name").to_owned(),
                kind: text(column, "type").to_owned(),
                format: text(column, "format").to_owned(),
                description: match text(column, "description") {
                    "" => format!(
                        "Custom resource definition column (in JSONPath format): {}",
                        text(column, "jsonPath")
                    ),
                    description => description.to_owned(),
                },
                priority: column["priority"].as_i64().unwrap_or_default(),
            },
            path: text(column, "jsonPath").to_owned(),
        })
        .collect()
}

/// The headers, the name first.
pub(super) fn headers(columns: &[CustomColumn]) -> Vec<Column> {
    let name = Column {
        name: "Name".to_owned(),
        kind: "string".to_owned(),
        format: "name".to_owned(),
        description: "Name of the object.".to_owned(),
        priority: 0,
    };
    std::iter::once(name)
        .chain(columns.iter().map(|column| column.header.clone()))
        .collect()
}

/// The cells of an object, its name first.
pub(super) fn cells(columns: &[CustomColumn], object: &Value) -> Vec<Value> {
    let name = Value::from(crate::object::meta(object, "name"));
    let cell = |column: &CustomColumn| match json_path::find(object, &column.path).first() {
        Some(value) => cell(&column.header.kind, value),
        None => Value::Null,
    };
    std::iter::once(name)
        .chain(columns.iter().map(cell))
        .collect()
}

fn cell(kind: &str, value: &Value) -> Value {
    match (kind, value) {
        (_, Value::Null) => Value::Null,
        ("integer", Value::Number(number)) => number
            .as_i64()
            .or_else(|| number.as_f64().map(|f| f as i64))
            .map_or(Value::Null, Value::from),
        ("number", Value::Number(_))
        | ("boolean", Value::Bool(_))
        | ("string", Value::String(_)) => value.clone(),
        ("string", other) => other.to_string().into(),
        ("date", Value::String(time)) => match time.parse::<jiff::Timestamp>() {
            Ok(time) => {
                let seconds = jiff::Timestamp::now().duration_since(time).as_secs();
                allot_model::table::human_duration(seconds).into()
            }
            Err(_) => "<invalid>".into(),
        },
        _ => Value::Null,
    }
}
