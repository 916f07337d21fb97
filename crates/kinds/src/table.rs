//! `meta.k8s.io` tables: what `kubectl get` prints.

use allot_model::table::human_duration;
use serde_json::{Value, json};

use crate::custom::Column;
use crate::negotiate::Shape;
use crate::object::meta;
use crate::registry::Resource;
use crate::request::Query;
use crate::versions::{self, dra_kind};
use crate::view::{View, metadata_only};

mod cluster;
mod control;
mod format;
mod kinds;
mod network;
mod pod;
mod storage;
mod workloads;

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

/// Makes the cells of a row.
type Row = Box<dyn Fn(&Value) -> Vec<Value>>;

/// The columns of a resource and the function for its rows.
struct Layout {
    columns: Vec<Column>,
    row: Row,
    /// Upstream's default printer leaves the rows of an empty list null.
    null_when_empty: bool,
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
pub fn table(
    view: &View<'_>,
    objects: &[Value],
    list_meta: Option<Value>,
    shape: Shape,
    options: Options,
) -> Value {
    let layout = layout(view);
    let mut objects: Vec<&Value> = objects.iter().collect();
    if view
        .resource
        .is("flowcontrol.apiserver.k8s.io", "flowschemas")
    {
        objects.sort_by_key(|object| control::flow_schema_place(object));
    }
    let rows: Vec<Value> = objects
        .iter()
        .map(|&object| {
            let mut row = json!({"cells": (layout.row)(object)});
            if view.resource.is("", "pods")
                && let Some(completed) = pod::completed(object)
            {
                row["conditions"] = json!([completed]);
            }
            row["object"] = match options.include {
                Include::None => Value::Null,
                Include::Metadata => view.metadata_only(object.clone(), shape),
                Include::Object => object.clone(),
            };
            row
        })
        .collect();
    let version = if shape == Shape::TableV1beta1 {
        "meta.k8s.io/v1beta1"
    } else {
        "meta.k8s.io/v1"
    };
    let meta = list_meta.unwrap_or_else(|| {
        match objects.first().map(|it| &it["metadata"]["resourceVersion"]) {
            None | Some(Value::Null) => json!({}),
            Some(revision) => json!({"resourceVersion": revision}),
        }
    });
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
    json!({
        "kind": "Table", "apiVersion": version, "metadata": meta,
        "columnDefinitions": if options.headers { json!(definitions) } else { Value::Null },
        "rows": if rows.is_empty() && layout.null_when_empty { Value::Null } else { json!(rows) },
    })
}

fn layout(view: &View<'_>) -> Layout {
    let resource = view.resource;
    if let Some(kind) = crate::classic::kind_in(resource, view.version) {
        let row =
            move |object: &Value| allot_model::classic::row(kind, object, jiff::Timestamp::now());
        return Layout {
            columns: owned_columns(allot_model::classic::columns(kind)),
            row: Box::new(row),
            null_when_empty: false,
        };
    }
    if let Some(kind) = dra_kind(resource) {
        let columns = owned_columns(allot_model::table::columns(kind));
        let resource = resource.clone();
        let row = Box::new(move |object: &Value| {
            // Cells are computed from the stored form, whatever version the client requests.
            let hub = versions::convert(&resource, object.clone(), &resource.storage_version);
            allot_model::table::row(kind, hub.as_ref().unwrap_or(object), jiff::Timestamp::now())
        });
        return Layout {
            columns,
            row,
            null_when_empty: false,
        };
    }
    if let Some(custom) = &resource.custom {
        let columns = custom.columns(view.version);
        let (custom, version) = (custom.clone(), view.version.to_owned());
        let row = Box::new(move |object: &Value| custom.row(&version, object));
        return Layout {
            columns,
            row,
            null_when_empty: false,
        };
    }
    match kinds::find(&resource.group, &resource.plural) {
        Some((columns, row)) => Layout {
            columns: parse_columns(columns),
            row: in_stored_form(resource, row),
            null_when_empty: false,
        },
        None => Layout {
            columns: parse_columns("Name|Created At:date"),
            row: Box::new(|object| {
                vec![
                    meta(object, "name").into(),
                    meta(object, "creationTimestamp").into(),
                ]
            }),
            null_when_empty: true,
        },
    }
}

/// Cells are computed from one form of an object, whatever version the client requests.
fn in_stored_form(resource: &Resource, row: fn(&Value) -> Vec<Value>) -> Row {
    match resource.group.as_str() {
        versions::EVENTS => Box::new(move |object| {
            let mut core = object.clone();
            versions::events::to_core(&mut core);
            row(&core)
        }),
        "autoscaling" => {
            let resource = resource.clone();
            Box::new(move |object| {
                let newest = versions::convert(&resource, object.clone(), "v2");
                row(newest.as_ref().unwrap_or(object))
            })
        }
        _ => Box::new(row),
    }
}

fn owned_columns(columns: &[allot_model::table::Column]) -> Vec<Column> {
    let owned = |column: &allot_model::table::Column| Column {
        name: column.name.to_owned(),
        kind: column.kind.to_owned(),
        format: column.format.to_owned(),
        description: column.description.to_owned(),
        priority: i64::from(column.priority),
    };
    columns.iter().map(owned).collect()
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
            let format = if name == "Name" { "name" } else { "" }.to_owned();
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
fn since(time: &str) -> String {
    match time.parse::<jiff::Timestamp>() {
        Ok(time) => human_duration(jiff::Timestamp::now().duration_since(time).as_secs()),
        Err(_) => "<unknown>".to_owned(),
    }
}

/// Time since creation.
fn age(object: &Value) -> Value {
    since(meta(object, "creationTimestamp")).into()
}
