//! The selectors of access reviews.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::fields::{self, FieldSelector};
use allot_apimachinery::labels::{Operator, Requirement, Selector};
use allot_apimachinery::names;
use serde_json::Value;

use crate::object::{strings, text};

/// Selectors of an access review are given as text or in parts.
pub(super) fn selectors(resource: &Value, path: &Path, errors: &mut ErrorList) {
    for key in ["fieldSelector", "labelSelector"] {
        let (selector, at) = (&resource[key], path.child(key));
        if !selector.is_object() {
            continue;
        }
        let raw = text(selector, &["rawSelector"]);
        let parts = selector["requirements"].as_array().map_or(0, Vec::len);
        if !raw.is_empty() && parts > 0 {
            let detail = "may not specified at the same time as requirements";
            errors.push(Error::invalid(&at.child("rawSelector"), raw, detail));
        } else if raw.is_empty() && parts == 0 {
            let detail = format!("when {at} is specified, requirements or rawSelector is required");
            errors.push(Error::required(&at.child("requirements"), detail));
        }
        let parts = selector["requirements"].as_array();
        for (index, part) in parts.into_iter().flatten().enumerate() {
            requirement(part, key, &at.child("requirements").index(index), errors);
        }
    }
}

/// Operators may be ones that are not known here.
fn requirement(part: &Value, of: &str, path: &Path, errors: &mut ErrorList) {
    let (key, values) = (text(part, &["key"]), strings(&part["values"]));
    let (for_fields, at) = (of == "fieldSelector", path.child("key"));
    if for_fields && key.is_empty() {
        errors.push(Error::required(&at, "must be specified"));
    }
    match text(part, &["operator"]) {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(Error::required(&path.child("values"), detail));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(Error::forbidden(&path.child("values"), detail));
        }
        _ => {}
    }
    if for_fields {
        return;
    }
    for why in names::qualified_name(key) {
        errors.push(Error::invalid(&at, key, why));
    }
    for (index, value) in values.iter().enumerate() {
        for why in names::label_value(value) {
            let at = path.child("values").index(index);
            errors.push(Error::invalid(&at, value.as_str(), why));
        }
    }
}

/// The field selector of an access review, in its order. A requirement that cannot be used is dropped.
pub(super) fn field_selector(selector: &Value) -> Option<FieldSelector> {
    let raw = text(selector, &["rawSelector"]);
    if !raw.is_empty() {
        return FieldSelector::parse(raw).ok();
    }
    let parts = selector["requirements"].as_array()?.iter();
    let parts = parts.filter_map(|part| {
        let negated = match text(part, &["operator"]) {
            "In" => false,
            "NotIn" => true,
            _ => return None,
        };
        let values = strings(&part["values"]);
        let [value] = values.as_slice() else {
            return None;
        };
        Some(fields::Requirement {
            field: text(part, &["key"]).to_owned(),
            value: value.clone(),
            negated,
        })
    });
    Some(FieldSelector::as_given(parts.collect()))
}

/// The label selector of an access review, in its order. A requirement that cannot be used is dropped.
pub(super) fn label_selector(selector: &Value) -> Option<Selector> {
    let raw = text(selector, &["rawSelector"]);
    if !raw.is_empty() {
        return Selector::parse(raw).ok();
    }
    let parts = selector["requirements"].as_array()?.iter();
    let parts = parts.filter_map(|part| {
        let operator = match text(part, &["operator"]) {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            _ => return None,
        };
        Requirement::as_given(text(part, &["key"]), operator, strings(&part["values"])).ok()
    });
    Some(Selector::as_given(parts.collect()))
}

/// The message of an access review whose selector, or a part of it, cannot be used.
pub(super) fn ignored(key: &str, selector: &Value) -> Option<String> {
    let field = key == "fieldSelector";
    let usable = |part: &Value| {
        let (operator, name) = (text(part, &["operator"]), text(part, &["key"]));
        let values = strings(&part["values"]);
        if field {
            return matches!(operator, "In" | "NotIn") && values.len() == 1;
        }
        let fits = match operator {
            "In" | "NotIn" => !values.is_empty(),
            "Exists" | "DoesNotExist" => values.is_empty(),
            _ => false,
        };
        let valid = |value: &String| names::label_value(value).is_empty();
        fits && names::qualified_name(name).is_empty() && values.iter().all(valid)
    };
    let raw = text(selector, &["rawSelector"]);
    let parts = crate::object::items(&selector["requirements"]);
    let (used, all) = match raw {
        "" => (
            parts.iter().filter(|part| usable(part)).count(),
            parts.len(),
        ),
        raw if field => (usize::from(FieldSelector::parse(raw).is_ok()), 1),
        raw => (usize::from(Selector::parse(raw).is_ok()), 1),
    };
    let partially = match used {
        used if used == all => return None,
        0 => "",
        _ => "partially ",
    };
    Some(format!(
        "spec.resourceAttributes.{key} {partially}ignored due to parse error"
    ))
}
