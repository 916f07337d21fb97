//! `meta.k8s.io` tables: what `kubectl get` prints.

use serde_json::{Value, json};

use crate::encode::{View, metadata_only};
use crate::negotiate::Shape;
use crate::object::meta;
use crate::request::Query;

/// What a table shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Column definitions are wanted.
    pub headers: bool,
    /// What comes with each row.
    pub include: Include,
}

/// What comes with each row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Include {
    /// Nothing.
    None,
    /// PartialObjectMetadata.
    Metadata,
    /// The object.
    Object,
}

impl Options {
    /// Those of a request.
    pub fn of(query: &Query) -> Self {
        let include = match query.get("includeObject") {
            Some("None") => Include::None,
            Some("Object") => Include::Object,
            _ => Include::Metadata,
        };
        Options {
            headers: true,
            include,
        }
    }
}

/// A column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Title.
    pub name: String,
    /// `string`, `integer`, `date`, ….
    pub kind: String,
    /// Format within the kind.
    pub format: String,
    /// Help text.
    pub description: String,
    /// 0 is always shown, others only on request.
    pub priority: i64,
}

/// The table of some objects.
pub fn table(
    view: &View<'_>,
    objects: &[Value],
    list_meta: Option<Value>,
    shape: Shape,
    options: Options,
) -> Value {
    let columns = [
        column("Name", "string", "name", 0),
        column("Age", "string", "", 0),
    ];
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let cells = json!([meta(object, "name"), age(object)]);
            let mut row = json!({"cells": cells});
            match options.include {
                Include::None => {}
                Include::Metadata => row["object"] = metadata_only(object.clone()),
                Include::Object => row["object"] = object.clone(),
            }
            row
        })
        .collect();
    let _ = view;
    let version = if shape == Shape::TableV1beta1 {
        "meta.k8s.io/v1beta1"
    } else {
        "meta.k8s.io/v1"
    };
    let meta = list_meta.unwrap_or_else(|| {
        let revision = objects.first().map_or(Value::Null, |object| {
            object["metadata"]["resourceVersion"].clone()
        });
        json!({"resourceVersion": revision})
    });
    let definitions: Vec<Value> = columns
        .iter()
        .map(|column| {
            json!({
                "name": column.name, "type": column.kind, "format": column.format,
                "description": column.description, "priority": column.priority,
            })
        })
        .collect();
    json!({
        "kind": "Table", "apiVersion": version, "metadata": meta,
        "columnDefinitions": if options.headers { json!(definitions) } else { Value::Null }, "rows": rows,
    })
}

fn column(name: &str, kind: &str, format: &str, priority: i64) -> Column {
    Column {
        name: name.to_owned(),
        kind: kind.to_owned(),
        format: format.to_owned(),
        description: String::new(),
        priority,
    }
}

/// Time since creation, as people write it.
fn age(object: &Value) -> String {
    let Ok(created) = meta(object, "creationTimestamp").parse::<jiff::Timestamp>() else {
        return "<unknown>".to_owned();
    };
    format!(
        "{}s",
        (jiff::Timestamp::now() - created)
            .total(jiff::Unit::Second)
            .unwrap_or(0.0) as i64
    )
}
