//! The validations and audit annotations of a validating admission policy.

use std::collections::BTreeSet;

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::Value;

use crate::builtin::admissionregistration::matching::compiles;
use crate::expression::{Compiler, ResultType};
use crate::validate::{list, one_of, rule, text};

const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
const MAX_ANNOTATIONS: usize = 20;
/// The longest expression of an annotation, in bytes.
const MAX_ANNOTATION: usize = 5 * 1024;

/// Checks validations and annotations.
pub(super) fn all(object: &Value, compiler: &Compiler, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let (validations, annotations) = (list(spec, "validations"), list(spec, "auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        let detail = "validations or auditAnnotations must contain at least one item";
        errors.push(Error::required(&path.child("validations"), detail));
        errors.push(Error::required(&path.child("auditAnnotations"), detail));
        return;
    }
    for (index, it) in validations.iter().enumerate() {
        validation(
            it,
            compiler,
            &path.child("validations").index(index),
            errors,
        );
    }
    let at = path.child("auditAnnotations");
    if annotations.len() > MAX_ANNOTATIONS {
        let detail = format!("must not have more than {MAX_ANNOTATIONS} auditAnnotations");
        errors.push(Error::invalid(&at, &spec["auditAnnotations"], detail));
    }
    let name = crate::object::meta(object, "name");
    let mut seen = BTreeSet::new();
    for (index, it) in annotations.iter().enumerate() {
        let at = at.index(index);
        annotation(it, name, compiler, &at, errors);
        let key = text(it, "key");
        if !seen.insert(key) {
            errors.push(Error::duplicate(&at.child("key"), key));
        }
    }
}

fn validation(value: &Value, compiler: &Compiler, path: &Path, errors: &mut ErrorList) {
    let expression = text(value, "expression");
    let at = path.child("expression");
    if expression.trim().is_empty() {
        errors.push(Error::required(&at, "expression is not specified"));
    } else {
        compiles(
            &compiler.compile(expression, ResultType::Bool, true),
            &at,
            errors,
        );
    }
    let made = text(value, "messageExpression");
    let at = path.child("messageExpression");
    if !made.is_empty() && made.trim().is_empty() {
        errors.push(Error::invalid(&at, made, "must be non-empty if specified"));
    } else if !made.is_empty() {
        compiles(
            &compiler.compile(made, ResultType::Text, false),
            &at,
            errors,
        );
    }
    let message = text(value, "message");
    let at = path.child("message");
    if !message.is_empty() && message.trim().is_empty() {
        errors.push(Error::invalid(
            &at,
            message,
            "must be non-empty if specified",
        ));
    } else if message.trim().contains(['\n', '\r']) {
        errors.push(Error::invalid(&at, message, "must not contain line breaks"));
    }
    let at = path.child("reason");
    one_of(text(value, "reason"), &REASONS, false, &at, errors);
}

fn annotation(
    value: &Value,
    policy: &str,
    compiler: &Compiler,
    path: &Path,
    errors: &mut ErrorList,
) {
    let (key, at) = (text(value, "key"), path.child("key"));
    if policy.is_empty() {
        let detail = "requires metadata.name be non-empty";
        errors.push(Error::invalid(&at, key, detail));
    } else {
        let full = format!("{policy}/{key}");
        rule(names::qualified_name(&full), &full, &at, errors);
    }
    let sent = text(value, "valueExpression");
    let (expression, at) = (sent.trim(), path.child("valueExpression"));
    if expression.is_empty() {
        errors.push(Error::required(&at, "valueExpression is not specified"));
    } else if expression.len() > MAX_ANNOTATION {
        let detail = format!("must not exceed {MAX_ANNOTATION} bytes in length");
        errors.push(Error::required(&at, detail));
    } else if let Err(error) = compiler
        .compile(expression, ResultType::TextOrNull, true)
        .program
    {
        let detail = error.to_string();
        errors.push(Error::invalid(&at, BadValue::from(sent), detail));
    }
}
