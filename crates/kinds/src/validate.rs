//! Validation of the kinds other than those of `resource.k8s.io`: upstream's rules as far as clients depend on them.
//!
//! The rules of a kind are in its file below `builtin`; here is what several kinds share.
//!
//! Objects are decoded and defaulted, in the stored version. The caller validates the metadata.

use std::collections::HashMap;

use allot_apimachinery::Quantity;
use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::labels::LabelSelector;
use serde_json::Value;

use crate::registry::Rules;
use crate::request::Part;

pub(crate) mod container;
pub(crate) mod internal;
pub mod ip;
pub(crate) mod network;
pub(crate) mod pod;
pub mod pod_annotations;
pub(crate) mod pod_diff;
pub(crate) mod resources;
pub mod scheduling;
pub(crate) mod security;
pub(crate) mod signer;
pub(crate) mod storage;
#[cfg(test)]
mod tests;
pub(crate) mod volume;
pub(crate) mod workloads;

/// Upstream's message for a change of an immutable field.
pub(crate) const IMMUTABLE: &str = "field is immutable";

/// Errors of a new object.
pub fn create(rules: &Rules, object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    rules.validate_create.unwrap_or(rules.validate)(object, &mut errors);
    errors
}

/// Errors of a change through an endpoint.
pub fn update(rules: &Rules, object: &Value, old: &Value, part: Part) -> ErrorList {
    let mut errors = ErrorList::new();
    match part {
        Part::Main => match rules.validate_update {
            Some(check) => check(object, old, &mut errors),
            None => (rules.validate)(object, &mut errors),
        },
        Part::Status => {
            if let Some(check) = rules.validate_status {
                check(object, old, &mut errors);
            }
        }
        _ => match rules.validate_part {
            Some(check) => check(object, old, part, &mut errors),
            None => (rules.validate)(object, &mut errors),
        },
    }
    ip::forgive(&mut errors, old);
    errors
}

pub(crate) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

pub(crate) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

/// The elements of a list by their names. Of those with the same name it is the first.
pub(crate) fn by_name<'a>(
    items: impl IntoIterator<Item = &'a Value>,
) -> HashMap<&'a str, &'a Value> {
    let mut found = HashMap::new();
    for item in items {
        found.entry(text(item, "name")).or_insert(item);
    }
    found
}

pub(crate) fn entries<'a>(
    value: &'a Value,
    key: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value[key].as_object().into_iter().flatten()
}

/// An amount of a resource. A text that is none has not passed decoding.
pub(crate) fn quantity(value: &Value) -> Option<Quantity> {
    value.as_str()?.parse().ok()
}

/// The field cannot change.
pub(crate) fn immutable(
    object: &Value,
    old: &Value,
    key: &str,
    path: &Path,
    errors: &mut ErrorList,
) {
    if object[key] != old[key] {
        errors.push(Error::invalid(path, &object[key], IMMUTABLE));
    }
}

/// Adds an error for each text that a rule gives.
pub(crate) fn rule(texts: Vec<String>, value: &str, path: &Path, errors: &mut ErrorList) {
    errors.extend(
        texts
            .into_iter()
            .map(|text| Error::invalid(path, value, text)),
    );
}

/// The value must be one of the supported ones; `required` forbids an empty one.
pub(crate) fn one_of(
    value: &str,
    supported: &[&str],
    required: bool,
    path: &Path,
    errors: &mut ErrorList,
) {
    if value.is_empty() {
        if required {
            errors.push(Error::required(path, ""));
        }
    } else if !supported.contains(&value) {
        errors.push(Error::not_supported(path, value, supported));
    }
}

/// A value that is a pointer upstream must be one of the supported ones, and an empty string is not; `required` forbids
/// to leave it out.
pub(crate) fn one_of_set(
    value: &Value,
    supported: &[&str],
    required: bool,
    path: &Path,
    errors: &mut ErrorList,
) {
    match value.as_str() {
        Some("") => errors.push(Error::not_supported(path, "", supported)),
        value => one_of(value.unwrap_or_default(), supported, required, path, errors),
    }
}

/// The number is not negative.
pub(crate) fn not_negative(value: &Value, path: &Path, errors: &mut ErrorList) {
    if let Some(number) = value.as_i64().filter(|number| *number < 0) {
        errors.push(Error::invalid(
            path,
            number,
            "must be greater than or equal to 0",
        ));
    }
}

/// The labels of a map, keys and values.
pub(crate) fn labels(value: &Value, path: &Path, errors: &mut ErrorList) {
    for (key, value) in value.as_object().into_iter().flatten() {
        rule(
            allot_apimachinery::names::qualified_name(key),
            key,
            path,
            errors,
        );
        let value = value.as_str().unwrap_or_default();
        rule(
            allot_apimachinery::names::label_value(value),
            value,
            path,
            errors,
        );
    }
}

/// Checks `matchLabels` and `matchExpressions`.
pub(crate) fn label_selector(selector: &Value, path: &Path, errors: &mut ErrorList) {
    if let Ok(selector) = LabelSelector::from_json(selector) {
        errors.extend(selector.validate(path));
    }
}

/// A number or a percentage for how many pods.
pub(crate) fn int_or_percent(value: &Value, path: &Path, errors: &mut ErrorList) {
    match value {
        Value::String(text) => {
            let digits = text.strip_suffix('%');
            if digits.is_none_or(|digits| {
                digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit())
            }) {
                let text_of = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
                errors.push(Error::invalid(path, text.as_str(), text_of));
            }
        }
        value => not_negative(value, path, errors),
    }
}

/// A reference to an object by kind and name.
pub(crate) fn kind_and_name(reference: &Value, path: &Path, errors: &mut ErrorList) {
    for key in ["kind", "name"] {
        let (value, at) = (text(reference, key), path.child(key));
        if value.is_empty() {
            errors.push(Error::required(&at, ""));
        } else {
            let texts = allot_apimachinery::names::path_segment_name(value);
            rule(texts, value, &at, errors);
        }
    }
}

/// A path that begins with a domain, such as `example.com/name`.
pub fn domain_prefixed_path(value: &str, path: &Path, errors: &mut ErrorList) {
    const FORM: &str = "[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+";
    if value.is_empty() {
        errors.push(Error::required(path, ""));
        return;
    }
    let parts = value.split_once('/');
    let Some((host, rest)) = parts.filter(|(host, rest)| !host.is_empty() && !rest.is_empty())
    else {
        let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        errors.push(Error::invalid(path, value, detail));
        return;
    };
    rule(
        allot_apimachinery::names::dns1123_subdomain(host),
        host,
        path,
        errors,
    );
    let fits = |c: char| c.is_ascii_alphanumeric() || "/-._~%!$&'()*+,;=:".contains(c);
    if !rest.chars().all(fits) {
        let detail = allot_apimachinery::names::regex_error("Invalid path", FORM, &[]);
        errors.push(Error::invalid(path, rest, detail));
    }
}

/// The message for a number outside a range.
pub(crate) fn between(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

/// Decoded length of a base64 text.
pub(crate) fn decoded_length(text: &str) -> usize {
    text.len() / 4 * 3 - text.bytes().rev().take_while(|b| *b == b'=').count()
}
