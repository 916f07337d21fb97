//! Small pieces that several kinds print.

use allot_apimachinery::well_known::BETA_STORAGE_CLASS_ANNOTATION;
use serde_json::{Value, json};

use crate::object::{meta, string_map, strings, text};

/// `<none>` for an empty text.
pub(crate) fn or_none(text: String) -> String {
    if text.is_empty() {
        "<none>".to_owned()
    } else {
        text
    }
}

/// A number, 0 if absent.
pub(crate) fn number(value: &Value) -> Value {
    value.as_i64().unwrap_or(0).into()
}

/// `a=b,c=d`, or `<none>`.
pub(crate) fn labels(value: &Value) -> String {
    let pairs: Vec<String> = string_map(value)
        .into_iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    or_none(pairs.join(","))
}

/// A `LabelSelector` in the form of the command line.
pub(crate) fn label_selector(value: &Value) -> String {
    if value.is_null() {
        return "<none>".to_owned();
    }
    let text = allot_apimachinery::labels::LabelSelector::from_json(value)
        .and_then(|selector| selector.to_selector())
        .map(|selector| selector.to_string())
        .unwrap_or_default();
    or_none(text)
}

/// Names and images of the containers of a pod spec.
pub(crate) fn containers(spec: &Value) -> (String, String) {
    let all = spec["containers"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let join = |key: &str| {
        all.iter()
            .filter_map(|it| it[key].as_str())
            .collect::<Vec<_>>()
            .join(",")
    };
    (join("name"), join("image"))
}

/// Items joined by commas, cut after `max` with a note how many follow.
pub(crate) fn list_with_more(items: &[String], max: usize) -> String {
    if items.len() <= max {
        return or_none(items.join(","));
    }
    format!("{} + {} more...", items[..max].join(","), items.len() - max)
}

/// Abbreviated access modes of a volume.
pub(crate) fn access_modes(value: &Value) -> String {
    let modes = strings(value);
    let shown = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let shown = shown
        .into_iter()
        .filter(|(mode, _)| modes.iter().any(|found| found == mode));
    shown.map(|(_, short)| short).collect::<Vec<_>>().join(",")
}

/// The cell with the amount of storage in a list of resources; none is zero.
pub(crate) fn storage(resources: &Value) -> String {
    resources["storage"].as_str().unwrap_or("0").to_owned()
}

/// The cell with the storage class of a volume or claim: that of the old annotation comes first.
pub(crate) fn storage_class(object: &Value) -> String {
    let said = object["metadata"]["annotations"][BETA_STORAGE_CLASS_ANNOTATION].as_str();
    said.unwrap_or_else(|| text(&object["spec"], &["storageClassName"]))
        .to_owned()
}

/// The cell with an object's name.
pub(crate) fn name(object: &Value) -> Value {
    meta(object, "name").into()
}

/// Adds the cells of wide output for a workload: containers and images of its pod template, and its selector.
pub(crate) fn with_template(object: &Value, mut cells: Vec<Value>, selector: String) -> Vec<Value> {
    let (names, images) = containers(&object["spec"]["template"]["spec"]);
    cells.extend([json!(names), json!(images), json!(selector)]);
    cells
}

/// How many endpoints a row shows.
pub(crate) const SHOWN_ENDPOINTS: usize = 3;
