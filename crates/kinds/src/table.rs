//! `meta.k8s.io` tables: what `kubectl get` prints.

use allot_model::table::human_duration;
use serde_json::{Map, Value, json};

use crate::custom::Column;
use crate::negotiate::Shape;
use crate::object::meta;
use crate::registry::{Layout, Resource};
use crate::request::Query;
use crate::view::{View, metadata_only};

pub(crate) mod format;

/// What a table shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Column definitions are requested.
    pub headers: bool,
    /// The object in each row.
    pub include: Include,
}

/// The object in each row.
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
    /// The options of a request.
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

/// The table of one scale.
pub fn scale(scale: Value, shape: Shape, options: Options) -> Value {
    let number = |part: &str| scale[part]["replicas"].as_i64().unwrap_or(0);
    let cells = json!([
        meta(&scale, "name"),
        number("spec"),
        number("status"),
        age(&scale),
    ]);
    let columns = [
        ("Name", "string", "name", "What the scale belongs to."),
        ("Desired", "integer", "", "Replicas that are wanted."),
        ("Available", "integer", "", "Replicas that there are."),
        ("Age", "date", "", "Time since the object was created."),
    ];
    let definitions: Vec<Value> = columns
        .iter()
        .map(|(name, kind, format, description)| {
            json!({"name": name, "type": kind, "format": format, "description": description, "priority": 0})
        })
        .collect();
    let version = match shape {
        Shape::TableV1beta1 => "meta.k8s.io/v1beta1",
        _ => "meta.k8s.io/v1",
    };
    let revision = meta(&scale, "resourceVersion").to_owned();
    let mut row = json!({"cells": cells});
    row["object"] = match options.include {
        Include::None => Value::Null,
        Include::Metadata => metadata_only(scale, shape),
        Include::Object => scale,
    };
    json!({
        "kind": "Table", "apiVersion": version, "metadata": {"resourceVersion": revision},
        "columnDefinitions": definitions, "rows": [row],
    })
}

/// The table of some objects in the requested version.
///
/// `json!` copies what it is given, by serialising it: objects and rows are moved.
pub fn table(
    view: &View<'_>,
    mut objects: Vec<Value>,
    list_meta: Option<Value>,
    shape: Shape,
    options: Options,
) -> Value {
    let layout = layout(view.resource, view.version);
    let rules = view.resource.rules;
    if let Some(place) = rules.row_order {
        objects.sort_by(|a, b| place(a).cmp(&place(b)));
    }
    let meta = list_meta.unwrap_or_else(|| {
        match objects.first().map(|it| &it["metadata"]["resourceVersion"]) {
            None | Some(Value::Null) => json!({}),
            Some(revision) => json!({"resourceVersion": revision}),
        }
    });
    let rows = objects.into_iter().map(|object| {
        let mut row = Map::new();
        row.insert("cells".to_owned(), (layout.row)(&object).into());
        if let Some(condition) = rules.row_condition.and_then(|of| of(&object)) {
            row.insert("conditions".to_owned(), Value::Array(vec![condition]));
        }
        let included = match options.include {
            Include::None => Value::Null,
            Include::Metadata => view.metadata_only(object, shape),
            Include::Object => object,
        };
        row.insert("object".to_owned(), included);
        Value::Object(row)
    });
    let rows: Vec<Value> = rows.collect();
    let version = if shape == Shape::TableV1beta1 {
        "meta.k8s.io/v1beta1"
    } else {
        "meta.k8s.io/v1"
    };
    let definitions: Vec<Value> = layout
        .columns
        .iter()
        .map(|column| {
            json!({
                "name": column.name, "type": column.kind, "format": column.format,
                "description": column.description, "priority": column.priority,
            })
        })
        .collect();
    let nothing = rows.is_empty() && layout.null_when_empty;
    let mut table = json!({
        "kind": "Table", "apiVersion": version, "metadata": meta,
        "columnDefinitions": if options.headers { json!(definitions) } else { Value::Null },
    });
    table["rows"] = if nothing { Value::Null } else { rows.into() };
    table
}

fn layout(resource: &Resource, version: &str) -> Layout {
    if let Some(custom) = &resource.custom {
        let columns = custom.columns(version);
        let (custom, version) = (custom.clone(), version.to_owned());
        return Layout {
            columns,
            row: Box::new(move |object: &Value| custom.row(&version, object)),
            null_when_empty: false,
        };
    }
    match (resource.rules.layout, resource.rules.table) {
        (Some(layout), _) => layout(resource, version),
        (None, Some((columns, row))) => Layout {
            columns: parse_columns(columns),
            row: Box::new(row),
            null_when_empty: false,
        },
        (None, None) => fallback(),
    }
}

/// The table of a kind without columns of its own.
pub(crate) fn fallback() -> Layout {
    Layout {
        columns: parse_columns("Name|Created At:date"),
        row: Box::new(|object| {
            vec![
                meta(object, "name").into(),
                // An object without a time, such as that of a bookmark, has the time zero of Go.
                match meta(object, "creationTimestamp") {
                    "" => "0001-01-01T00:00:00Z".into(),
                    created => created.into(),
                },
            ]
        }),
        null_when_empty: true,
    }
}

/// Reads `Name|Desired:integer|IP::1`: title, type (string), priority (0).
fn parse_columns(text: &str) -> Vec<Column> {
    text.split('|')
        .map(|column| {
            let mut parts = column.split(':');
            let name = parts.next().unwrap_or_default().to_owned();
            let kind = parts
                .next()
                .filter(|kind| !kind.is_empty())
                .unwrap_or("string")
                .to_owned();
            let priority = parts
                .next()
                .and_then(|priority| priority.parse().ok())
                .unwrap_or(0);
            // What upstream marks as a name; the name of an attacher is no object's.
            let format = match name.as_str() {
                "Name" | "Attacher" => "name".to_owned(),
                _ => String::new(),
            };
            Column {
                name,
                kind,
                format,
                description: String::new(),
                priority,
            }
        })
        .collect()
}

/// Time since an RFC 3339 time, in short form; `<unknown>` if there is none.
pub(crate) fn since(time: &str) -> String {
    match time.parse::<jiff::Timestamp>() {
        Ok(time) => human_duration(jiff::Timestamp::now().duration_since(time).as_secs()),
        Err(_) => "<unknown>".to_owned(),
    }
}

/// Time since creation.
pub(crate) fn age(object: &Value) -> Value {
    since(meta(object, "creationTimestamp")).into()
}
