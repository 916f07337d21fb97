//! Events of the core group, in whose form those of `events.k8s.io` are stored.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::{Value, json};

use crate::object;
use crate::registry::{BASE, Builtin, ComputedField, MetadataErrors, Rules, UnsupportedField};
use crate::table::format::name;
use crate::table::since;
use crate::validate::{rule, text};

pub(super) static EVENT: Builtin = Builtin {
    kind: "Event",
    plural: "events",
    short: &["ev"],
    rules: Rules {
        create_on_update: true,
        has_no_dependents: true,
        reads_from_store: true,
        validate,
        metadata_errors: MetadataErrors::Alone,
        checks_metadata_change: |_| false,
        validates_metadata_again: false,
        selectable: SELECTABLE,
        computed_fields: COMPUTED,
        unsupported_field: UnsupportedField::NotSupported,
        table: Some((
            "Last Seen|Type|Reason|Object|Subobject::1|Source::1|Message|First Seen::1|Count::1|Name::1",
            row,
        )),
        ..Rules::DEFAULT
    },
    ..BASE
};

/// The fields of field selectors, for both groups of events.
pub(in crate::builtin) const SELECTABLE: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

/// The component that an event is from, for both groups of events.
pub(in crate::builtin) const COMPUTED: &[ComputedField] = &[ComputedField {
    name: "source",
    reads: &["source.component", "reportingComponent"],
    value: source,
}];

fn source(event: &Value) -> String {
    let component = object::text(event, &["source", "component"]);
    let source = if component.is_empty() {
        object::text(event, &["reportingComponent"])
    } else {
        component
    };
    source.to_owned()
}

/// Longest instance, action and reason, in bytes.
const MAX_WORD: usize = 128;
const MAX_NOTE: usize = 1024;

/// An event through the core group, and what holds for all of them.
fn validate(event: &Value, errors: &mut ErrorList) {
    validate_as(event, "reportingComponent", errors);
}

/// As [`validate`]; `controller_field` is what the API calls the field with the controller.
pub(in crate::builtin) fn validate_as(
    event: &Value,
    controller_field: &str,
    errors: &mut ErrorList,
) {
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

pub(in crate::builtin) fn row(object: &Value) -> Vec<Value> {
    let involved = if object["regarding"].is_object() {
        &object["regarding"]
    } else {
        &object["involvedObject"]
    };
    let first = [
        object::text(object, &["firstTimestamp"]),
        object::text(object, &["eventTime"]),
    ];
    let first = first
        .into_iter()
        .find(|time| !time.is_empty())
        .unwrap_or_default();
    let last = match (
        object::text(object, &["series", "lastObservedTime"]),
        object::text(object, &["lastTimestamp"]),
    ) {
        ("", "") => first,
        ("", last) => last,
        (observed, _) => observed,
    };
    let count = object["series"]["count"]
        .as_i64()
        .or(object["count"].as_i64())
        .filter(|count| *count != 0)
        .unwrap_or(1);
    let component = [
        object::text(object, &["source", "component"]),
        object::text(object, &["reportingComponent"]),
    ];
    let component = component
        .into_iter()
        .find(|it| !it.is_empty())
        .unwrap_or_default();
    let host = [
        object::text(object, &["source", "host"]),
        object::text(object, &["reportingInstance"]),
    ];
    let host = host
        .into_iter()
        .find(|it| !it.is_empty())
        .unwrap_or_default();
    let source = [component, host]
        .into_iter()
        .filter(|it| !it.is_empty())
        .collect::<Vec<_>>()
        .join(", ");
    let target = object::text(involved, &["kind"]).to_lowercase();
    let target = match object::text(involved, &["name"]) {
        "" => target,
        name => format!("{target}/{name}"),
    };
    vec![
        json!(since(last)),
        json!(object::text(object, &["type"])),
        json!(object::text(object, &["reason"])),
        json!(target),
        json!(object::text(involved, &["fieldPath"])),
        json!(source),
        json!(object::text(object, &["message"]).trim()),
        json!(since(first)),
        json!(count),
        name(object),
    ]
}
