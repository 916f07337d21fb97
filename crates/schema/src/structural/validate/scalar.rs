//! Checks of one value against one keyword: `type`, `enum`, `format`, and the limits of strings, lists and objects.

use allot_apimachinery::quote::quote;
use serde_json::Value;

use super::number;
use super::outcome::{Fault, Kind, Outcome};
use super::position::At;
use crate::structural::{Structural, format, patterns};

pub(super) fn wrong_type(expected: &str, found: &str, at: &At<'_>) -> Outcome {
    let text = format!("must be of type {expected}: {}", quote(found));
    Outcome::of(at.fault(Kind::Type, found, &text))
}

pub(super) fn check_null(expected: &str, nullable: bool, at: &At<'_>) -> Outcome {
    if expected.is_empty() || expected == "null" || nullable {
        return Outcome::passed();
    }
    wrong_type(expected, "null", at)
}

pub(super) fn check_type(value: &Value, expected: &str, format: &str, at: &At<'_>) -> Outcome {
    let expects = |ty: &str| expected.split(',').any(|expected| expected == ty);
    let (found, found_format) = match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_i64() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    };
    let fits = expects(found)
        || match value {
            Value::Number(number) if found == "number" => {
                expects("integer") && number.as_f64().is_some_and(number::is_whole)
            }
            Value::Number(_) => expects("number"),
            _ => false,
        };
    let textual = matches!(value, Value::String(_) | Value::Array(_));
    if !textual && !format.is_empty() && !fits && found_format != format {
        return wrong_type(format, found_format, at);
    }
    // Upstream leaves texts and lists with a format to the check of the format.
    let left_to_format = textual && !format.is_empty() && !expects("number") && !expects("integer");
    if fits || left_to_format {
        return Outcome::passed();
    }
    wrong_type(expected, found, at)
}

/// How many elements or fields there may be.
pub(super) fn check_size(
    count: i64,
    min: Option<i64>,
    max: Option<i64>,
    what: &str,
    at: &At<'_>,
    found: &mut Outcome,
) {
    if let Some(min) = min.filter(|min| count < *min) {
        let text = format!("should have at least {min} {what}");
        found.add(at.fault(Kind::Other, count, &text));
    }
    if let Some(max) = max.filter(|max| count > *max) {
        let text = format!("should have at most {max} {what}");
        found.add(at.fault(Kind::TooMany { count, max }, count, &text));
    }
}

pub(super) fn check_enum(value: &Value, schema: &Structural, at: &At<'_>) -> Outcome {
    let Some(allowed) = schema.checks.allowed.as_ref().filter(|all| !all.is_empty()) else {
        return Outcome::default();
    };
    if !value.is_null() && allowed.iter().any(|allowed| number::same(value, allowed)) {
        return Outcome::default();
    }
    if at.budget.is_spent() {
        return Outcome::of(Fault::untold());
    }
    let shown = |value: &Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    let names: Vec<String> = allowed.iter().map(shown).collect();
    let text = format!("should be one of [{}]", names.join(" "));
    Outcome::of(at.fault(Kind::Enum(names), value, &text))
}

pub(super) fn check_string(text: &str, schema: &Structural, at: &At<'_>) -> Outcome {
    let checks = &schema.checks;
    let length = text.chars().count() as i64;
    let fault = if let Some(max) = checks.max_length.filter(|max| length > *max) {
        let words = format!("should be at most {max} chars long");
        at.fault(Kind::TooLong(max), text, &words)
    } else if let Some(min) = checks.min_length.filter(|min| length < *min) {
        let words = format!("should be at least {min} chars long");
        at.fault(Kind::Other, text, &words)
    } else if !checks.pattern.is_empty() && !patterns::matches(&checks.pattern, text) {
        if at.budget.is_spent() {
            return Outcome::of(Fault::untold());
        }
        let words = format!("should match '{}'", checks.pattern);
        at.fault(Kind::Other, text, &words)
    } else {
        return Outcome::default();
    };
    Outcome::of(fault)
}

pub(super) fn check_format(text: &str, format: &str, at: &At<'_>) -> Outcome {
    if format::check(format, text) {
        return Outcome::default();
    }
    let words = format!("must be of type {format}: {}", quote(text));
    Outcome::of(at.fault(Kind::Type, text, &words))
}
