//! Validation of the kinds other than those of `resource.k8s.io`: upstream's rules as far as clients depend on them.
//!
//! Objects are decoded and defaulted, in the stored version. The caller validates the metadata.

use std::collections::HashMap;

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::labels::LabelSelector;
use serde_json::Value;

use crate::registry::Rules;
use crate::request::Part;

pub(crate) mod access;
pub(crate) mod admission;
pub(crate) mod apps;
pub(crate) mod batch;
pub(crate) mod certificate;
pub(crate) mod config;
mod container;
pub(crate) mod csi;
pub(crate) mod event;
pub(crate) mod flow;
pub(crate) mod internal;
pub mod ip;
pub(crate) mod namespace;
pub(crate) mod network;
pub(crate) mod node;
mod persistent;
pub(crate) mod pod;
pub mod pod_annotations;
mod pod_diff;
pub(crate) mod pod_resize;
pub(crate) mod pod_status;
pub(crate) mod pod_update;
pub(crate) mod quota;
mod resources;
pub(crate) mod scaling;
mod scheduling;
mod security;
pub(crate) mod service;
pub(crate) mod storage;
mod volume;
pub(crate) mod workload;

pub use network::addresses::ip_name;

/// Upstream's message for a change of an immutable field.
const IMMUTABLE: &str = "field is immutable";

/// Errors of a new object.
pub fn create(rules: &Rules, object: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    rules.validate_create.unwrap_or(rules.validate)(object, &mut errors);
    errors
}

/// Errors of a service's addresses and families; they prevent an allocation.
pub fn cluster_addresses(service: &Value) -> ErrorList {
    let mut errors = ErrorList::new();
    service::addresses(service, &mut errors);
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

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

/// The elements of a list by their names. Of those with the same name it is the first.
fn by_name<'a>(items: impl IntoIterator<Item = &'a Value>) -> HashMap<&'a str, &'a Value> {
    let mut found = HashMap::new();
    for item in items {
        found.entry(text(item, "name")).or_insert(item);
    }
    found
}

fn entries<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value[key].as_object().into_iter().flatten()
}

/// Adds an error for each text that a rule gives.
fn rule(texts: Vec<String>, value: &str, path: &Path, errors: &mut ErrorList) {
    errors.extend(
        texts
            .into_iter()
            .map(|text| Error::invalid(path, value, text)),
    );
}

/// The value must be one of the supported ones; `required` forbids an empty one.
fn one_of(value: &str, supported: &[&str], required: bool, path: &Path, errors: &mut ErrorList) {
    if value.is_empty() {
        if required {
            errors.push(Error::required(path, ""));
        }
    } else if !supported.contains(&value) {
        errors.push(Error::not_supported(path, value, supported));
    }
}

/// The number is not negative.
fn not_negative(value: &Value, path: &Path, errors: &mut ErrorList) {
    if let Some(number) = value.as_i64().filter(|number| *number < 0) {
        errors.push(Error::invalid(
            path,
            number,
            "must be greater than or equal to 0",
        ));
    }
}

/// The labels of a map, keys and values.
fn labels(value: &Value, path: &Path, errors: &mut ErrorList) {
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

/// A label selector.
fn label_selector(selector: &Value, path: &Path, errors: &mut ErrorList) {
    if let Ok(selector) = LabelSelector::from_json(selector) {
        errors.extend(selector.validate(path));
    }
}

/// A number or a percentage for how many pods.
fn int_or_percent(value: &Value, path: &Path, errors: &mut ErrorList) {
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
fn between(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

#[cfg(test)]
mod tests;
