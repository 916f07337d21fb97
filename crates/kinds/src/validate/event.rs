//! Events. Upstream checks both APIs' in the form of the core group; `events.k8s.io` is stricter.

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::names;
use allot_apimachinery::quote::go_json;
use serde_json::Value;

use super::{IMMUTABLE, rule, text};
use crate::versions::events;

/// Longest instance, action and reason, in bytes.
const MAX_WORD: usize = 128;
const MAX_NOTE: usize = 1024;

/// An event in the form of the core group, whichever API it was sent through.
fn core_form(event: &Value) -> Value {
    let mut event = event.clone();
    events::to_core(&mut event);
    event
}

/// An event through the core group, and what holds for all of them.
pub(crate) fn validate(event: &Value, errors: &mut ErrorList) {
    checked(event, "reportingComponent", errors);
}

/// As [`validate`]; `controller` is what the API calls the field.
fn checked(event: &Value, controller_field: &str, errors: &mut ErrorList) {
    let own = text(&event["metadata"], "namespace");
    let found = text(&event["involvedObject"], "namespace");
    let is_new = event["eventTime"].is_string();
    let fits = match (is_new, found) {
        (false, "") => own == "default",
        (false, found) => found == own,
        (true, "") => own == "default" || own == "kube-system",
        (true, _) => true,
    };
    if !fits {
        let path = Path::new("involvedObject").child("namespace");
        let detail = "does not match event.namespace";
        errors.push(Error::invalid(&path, found, detail));
    }
    if !is_new {
        return;
    }
    let controller = text(event, "reportingComponent");
    let path = Path::new(controller_field);
    if controller.is_empty() {
        errors.push(Error::required(&path, ""));
    }
    rule(names::qualified_name(controller), controller, &path, errors);
    for key in ["reportingInstance", "action", "reason"] {
        let value = text(event, key);
        if value.is_empty() {
            errors.push(Error::required(&Path::new(key), ""));
        }
        at_most(value, MAX_WORD, key, errors);
    }
    at_most(text(event, "message"), MAX_NOTE, "message", errors);
}

fn at_most(value: &str, max: usize, key: &str, errors: &mut ErrorList) {
    if value.len() > max {
        let detail = format!("can have at most {max} characters");
        errors.push(Error::invalid(&Path::new(key), "", detail));
    }
}

fn series(event: &Value, errors: &mut ErrorList) {
    let series = &event["series"];
    if !series.is_object() {
        return;
    }
    if series["count"].as_i64().unwrap_or_default() < 2 {
        let detail = "should be at least 2";
        errors.push(Error::invalid(&Path::new("series.count"), "", detail));
    }
    if !series["lastObservedTime"].is_string() {
        let path = Path::new("series.lastObservedTime");
        errors.push(Error::required(&path, ""));
    }
}

/// A new event through `events.k8s.io`.
pub(crate) fn validate_new_style(event: &Value, errors: &mut ErrorList) {
    let event = core_form(event);
    checked(&event, "reportingController", errors);
    series(&event, errors);
    if !event["eventTime"].is_string() {
        errors.push(Error::required(&Path::new("eventTime"), ""));
    }
    let kind = text(&event, "type");
    if !matches!(kind, "Normal" | "Warning") {
        let detail = format!("has invalid value: {kind}");
        errors.push(Error::invalid(&Path::new("type"), "", detail));
    }
    let source = &event["source"];
    for (key, set) in [
        ("firstTimestamp", event["firstTimestamp"].is_string()),
        ("lastTimestamp", event["lastTimestamp"].is_string()),
        ("count", event["count"].as_i64().unwrap_or_default() != 0),
        (
            "source",
            !text(source, "component").is_empty() || !text(source, "host").is_empty(),
        ),
    ] {
        if set {
            errors.push(Error::invalid(&Path::new(key), "", "needs to be unset"));
        }
    }
}

/// An update of an event through `events.k8s.io`: only its series may change.
pub(crate) fn update_new_style(event: &Value, old: &Value, errors: &mut ErrorList) {
    let (event, old) = (core_form(event), core_form(old));
    checked(&event, "reportingController", errors);
    if event["series"] != old["series"] {
        series(&event, errors);
    }
    for key in [
        "involvedObject",
        "reason",
        "message",
        "source",
        "firstTimestamp",
        "lastTimestamp",
        "count",
        // Upstream compares it twice.
        "reason",
        "type",
        "eventTime",
        "action",
        "related",
        "reportingComponent",
        "reportingInstance",
    ] {
        let (new, before) = (shown(key, &event[key]), shown(key, &old[key]));
        if new != before {
            let name = match key {
                "reportingComponent" => "reportingController",
                key => key,
            };
            let new = BadValue::raw(new);
            errors.push(Error::invalid(&Path::new(name), new, IMMUTABLE));
        }
    }
}

/// A field as JSON of upstream's structs.
fn shown(key: &str, value: &Value) -> String {
    const REFERENCE: [(&str, &str); 7] = [
        ("Kind", "kind"),
        ("Namespace", "namespace"),
        ("Name", "name"),
        ("UID", "uid"),
        ("APIVersion", "apiVersion"),
        ("ResourceVersion", "resourceVersion"),
        ("FieldPath", "fieldPath"),
    ];
    const SOURCE: [(&str, &str); 2] = [("Component", "component"), ("Host", "host")];
    let structure = |fields: &[(&str, &str)]| {
        let members = fields.iter().map(|(go, json)| {
            let member = go_json(&text(value, json).into());
            format!("\"{go}\":{member}")
        });
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    };
    match key {
        "related" if value.is_null() => "null".to_owned(),
        "involvedObject" | "related" => structure(&REFERENCE),
        "source" => structure(&SOURCE),
        "firstTimestamp" | "lastTimestamp" | "eventTime" => go_json(value),
        "count" => value.as_i64().unwrap_or_default().to_string(),
        _ => go_json(&value.as_str().unwrap_or_default().into()),
    }
}
