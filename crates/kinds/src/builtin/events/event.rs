//! Events of `events.k8s.io`, which are stored in the form of the core group.

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::quote::go_json;
use serde_json::Value;

use crate::builtin::core;
use crate::builtin::core::event::{COMPUTED, SELECTABLE, validate_as};
use crate::registry::{BASE, Builtin, MetadataErrors, Rules, StoredForm, UnsupportedField};
use crate::validate::{IMMUTABLE, text};
use crate::versions::events;

pub(super) static EVENT: Builtin = Builtin {
    group: "events.k8s.io",
    kind: "Event",
    plural: "events",
    short: &["ev"],
    stored_with: Some(("", "events")),
    rules: Rules {
        create_on_update: true,
        has_no_dependents: true,
        reads_from_store: true,
        // The conversion from and to the core group's form has normalized it.
        normalize: Some(|_, _| {}),
        stored_form: Some(StoredForm {
            read: events::from_core,
            write: events::to_core,
        }),
        validate,
        validate_create: Some(|stored, errors| {
            let mut event = stored.clone();
            events::from_core(&mut event);
            validate(&event, errors);
        }),
        validate_update: Some(validate_update),
        metadata_errors: MetadataErrors::AfterInvolvedObject,
        // Those without are from before that field.
        checks_metadata_change: |event| !event["eventTime"].is_null(),
        validates_metadata_again: false,
        selectable: SELECTABLE,
        computed_fields: COMPUTED,
        renamed_fields: RENAMED,
        unsupported_field: UnsupportedField::NotSupported,
        table: Some((
            "Last Seen|Type|Reason|Object|Subobject::1|Source::1|Message|First Seen::1|Count::1|Name::1",
            row,
        )),
        ..Rules::DEFAULT
    },
    ..BASE
};

/// The fields that the group gives other names, as they are stored and as it calls them; it has none for the component
/// that older events name.
const RENAMED: &[(&str, &str)] = &[
    ("involvedObject.kind", "regarding.kind"),
    ("involvedObject.namespace", "regarding.namespace"),
    ("involvedObject.name", "regarding.name"),
    ("involvedObject.uid", "regarding.uid"),
    ("involvedObject.apiVersion", "regarding.apiVersion"),
    (
        "involvedObject.resourceVersion",
        "regarding.resourceVersion",
    ),
    ("involvedObject.fieldPath", "regarding.fieldPath"),
    ("reportingComponent", "reportingController"),
    ("source", ""),
];

/// The cells are computed from the stored form.
fn row(event: &Value) -> Vec<Value> {
    core::event::row(&core_form(event))
}

/// An event in the form of the core group, whichever API it was sent through.
fn core_form(event: &Value) -> Value {
    let mut event = event.clone();
    events::to_core(&mut event);
    event
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
fn validate(event: &Value, errors: &mut ErrorList) {
    let event = core_form(event);
    validate_as(&event, "reportingController", errors);
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
fn validate_update(event: &Value, old: &Value, errors: &mut ErrorList) {
    let (event, old) = (core_form(event), core_form(old));
    validate_as(&event, "reportingController", errors);
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
