//! Events, old and new.

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::Value;

use super::text;

/// An event through the core group, which checks little; those with an `eventTime` follow the new rules.
pub(super) fn validate(event: &Value, errors: &mut ErrorList) {
    same_namespace(event, "involvedObject", errors);
}

/// An event through `events.k8s.io`.
pub(super) fn validate_new_style(event: &Value, errors: &mut ErrorList) {
    // What is stored is the core form of the event; either field may hold the object.
    let subject = if event["regarding"].is_object() {
        "regarding"
    } else {
        "involvedObject"
    };
    same_namespace(event, subject, errors);
    if event["eventTime"].is_null() {
        errors.push(Error::required(&Path::new("eventTime"), ""));
    }
    let kind = text(event, "type");
    if !matches!(kind, "Normal" | "Warning") {
        errors.push(Error::invalid(
            &Path::new("type"),
            "",
            format!("has invalid value: {kind}"),
        ));
    }
    if event["eventTime"].is_null() {
        return;
    }
    for key in [
        "reportingController",
        "reportingInstance",
        "action",
        "reason",
    ] {
        let stored = if key == "reportingController" {
            "reportingComponent"
        } else {
            key
        };
        if text(event, key).is_empty() && text(event, stored).is_empty() {
            errors.push(Error::required(&Path::new(key), ""));
        }
    }
}

fn same_namespace(event: &Value, subject: &str, errors: &mut ErrorList) {
    let found = text(&event[subject], "namespace");
    let own = text(&event["metadata"], "namespace");
    let fits = if found.is_empty() {
        own == "default" || own == "kube-system"
    } else {
        found == own
    };
    if !fits {
        let path = Path::new("involvedObject").child("namespace");
        errors.push(Error::invalid(
            &path,
            found,
            "does not match event.namespace",
        ));
    }
}
