//! Validation of the other fields of `x-kubernetes-validations`: messages, reasons and field paths.

use std::cell::LazyCell;

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::Value;

use super::{list, text, unsupported};
use crate::{rules::resolve_field_path, structural::Structural};

const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

pub(super) fn validate(schema: &Value, path: &Path, errors: &mut ErrorList) {
    let rules = list(schema, "x-kubernetes-validations");
    // The schema contains the rules: read for each of them, it would cost the square of their number.
    let read = LazyCell::new(|| {
        let usable = unsupported(schema).is_none();
        usable.then(|| Structural::from_json(schema))
    });
    let resolves = |field: &str| match &*read {
        Some(schema) => resolve_field_path(field, schema, true).is_ok(),
        None => true,
    };
    for (index, rule) in rules.iter().enumerate() {
        let at = path.child("x-kubernetes-validations").index(index);
        validate_rule(rule, resolves, &at, errors);
    }
}

/// Validates one rule; `resolves` says whether its `fieldPath` leads to a field of the schema.
fn validate_rule(
    rule: &Value,
    resolves: impl Fn(&str) -> bool,
    path: &Path,
    errors: &mut ErrorList,
) {
    const EMPTY: &str = "must be non-empty if specified";
    const BROKEN: &str = "must not contain line breaks";
    let broken = |text: &str| text.contains(['\n', '\r']);
    let blank = |text: &str| !text.is_empty() && text.trim().is_empty();
    let (source, message) = (text(rule, "rule").trim(), text(rule, "message"));
    let at = path.child("message");
    if source.is_empty() {
        let at = path.child("rule");
        errors.push(Error::required(&at, "rule is not specified"));
    } else if blank(message) {
        errors.push(Error::invalid(&at, message, EMPTY));
    } else if broken(message.trim()) {
        errors.push(Error::invalid(&at, message, BROKEN));
    } else if broken(source) && message.is_empty() {
        let detail = "message must be specified if rule contains line breaks";
        errors.push(Error::required(&at, detail));
    }
    if blank(text(rule, "messageExpression")) {
        let detail = "messageExpression must be non-empty if specified";
        let at = path.child("messageExpression");
        errors.push(Error::required(&at, detail));
    }
    let reason = rule["reason"].as_str();
    if let Some(reason) = reason.filter(|reason| !REASONS.contains(reason)) {
        let at = path.child("reason");
        errors.push(Error::not_supported(&at, reason, &REASONS));
    }
    let (field, at) = (text(rule, "fieldPath"), path.child("fieldPath"));
    if blank(field) {
        errors.push(Error::invalid(&at, field, EMPTY));
    }
    if broken(field) {
        errors.push(Error::invalid(&at, field, BROKEN));
    }
    if !field.is_empty() && !resolves(field) {
        errors.push(Error::invalid(&at, field, "must be a valid path"));
    }
}
