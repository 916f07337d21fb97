//! Conditions, as all Kubernetes kinds validate them.

use std::collections::BTreeSet;

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::names as rules;
use allot_apimachinery::quote::go_json;
use serde_json::Value;

use super::common::invalid;
use super::names;
use crate::view::View;

const MAX_REASON: usize = 1024;
const MAX_MESSAGE: usize = 32 * 1024;

/// Checks a list of `metav1.Condition`.
pub(super) fn conditions(list: &[Value], path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut seen = BTreeSet::new();
    for (index, condition) in list.iter().enumerate() {
        let path = path.index(index);
        let kind = condition.text("type");
        if !seen.insert(kind) {
            errors.push(Error::duplicate(&path.child("type"), kind));
        }
        errors.extend(self::condition(condition, &path));
    }
    errors
}

fn condition(condition: &Value, path: &Path) -> ErrorList {
    let mut errors = names::label_name(condition.text("type"), &path.child("type"));
    let status = condition.text("status");
    if !matches!(status, "True" | "False" | "Unknown") {
        let status = BadValue::raw(go_json(&Value::from(status)));
        errors.push(Error::not_supported(
            &path.child("status"),
            status,
            &["False", "True", "Unknown"],
        ));
    }
    let generation = condition.int("observedGeneration");
    if generation < 0 {
        let text = "must be greater than or equal to zero";
        errors.push(Error::invalid(
            &path.child("observedGeneration"),
            generation,
            text,
        ));
    }
    if condition.text("lastTransitionTime").is_empty() {
        errors.push(Error::required(&path.child("lastTransitionTime"), ""));
    }
    let reason = condition.text("reason");
    let reason_path = path.child("reason");
    if reason.is_empty() {
        errors.push(Error::required(&reason_path, ""));
    } else {
        errors.extend(invalid(
            &reason_path,
            reason,
            rules::condition_reason(reason),
        ));
        if reason.len() > MAX_REASON {
            errors.push(Error::too_long(&reason_path, MAX_REASON));
        }
    }
    if condition.text("message").len() > MAX_MESSAGE {
        errors.push(Error::too_long(&path.child("message"), MAX_MESSAGE));
    }
    errors
}
