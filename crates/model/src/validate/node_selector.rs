//! Node selectors, as the core group validates them.

use allot_apimachinery::field::{BadValue, Error, ErrorList, Path};
use allot_apimachinery::quote::go_json;
use serde_json::Value;

use super::names;
use crate::view::{View, texts};

/// Checks a `NodeSelector`.
pub(crate) fn node_selector(selector: &Value, path: &Path) -> ErrorList {
    let path = path.child("nodeSelectorTerms");
    let terms = selector.list("nodeSelectorTerms");
    if terms.is_empty() {
        return ErrorList::from([Error::required(
            &path,
            "must have at least one node selector term",
        )]);
    }
    let mut errors = ErrorList::new();
    for (index, term) in terms.iter().enumerate() {
        let path = path.index(index);
        let expressions = path.child("matchExpressions");
        for (index, requirement) in term.list("matchExpressions").iter().enumerate() {
            errors.extend(label_requirement(requirement, &expressions.index(index)));
        }
        let fields = path.child("matchFields");
        for (index, requirement) in term.list("matchFields").iter().enumerate() {
            errors.extend(field_requirement(requirement, &fields.index(index)));
        }
    }
    errors
}

fn unknown_operator(requirement: &Value, path: &Path) -> Error {
    let operator = BadValue::raw(go_json(&Value::from(requirement.text("operator"))));
    Error::invalid(
        &path.child("operator"),
        operator,
        "not a valid selector operator",
    )
}

fn label_requirement(requirement: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let values = requirement.list("values");
    let values_path = path.child("values");
    match requirement.text("operator") {
        "In" | "NotIn" if values.is_empty() => {
            errors.push(Error::required(
                &values_path,
                "must be specified when `operator` is 'In' or 'NotIn'",
            ));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(Error::forbidden(&values_path, text));
        }
        "Gt" | "Lt" if values.len() != 1 => {
            let text = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            errors.push(Error::required(&values_path, text));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
        _ => errors.push(unknown_operator(requirement, path)),
    }
    errors.extend(names::label_name(
        requirement.text("key"),
        &path.child("key"),
    ));
    for (index, value) in texts(values).enumerate() {
        errors.extend(names::label_value(value, &values_path.index(index)));
    }
    errors
}

fn field_requirement(requirement: &Value, path: &Path) -> ErrorList {
    let mut errors = ErrorList::new();
    let values = requirement.list("values");
    let values_path = path.child("values");
    match requirement.text("operator") {
        "In" | "NotIn" if values.len() != 1 => {
            let text =
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            errors.push(Error::required(&values_path, text));
        }
        "In" | "NotIn" => {}
        _ => errors.push(unknown_operator(requirement, path)),
    }
    let key = requirement.text("key");
    if key == "metadata.name" {
        for (index, value) in texts(values).enumerate() {
            errors.extend(names::subdomain(value, &values_path.index(index)));
        }
    } else {
        errors.push(Error::invalid(
            &path.child("key"),
            key,
            "not a valid field selector key",
        ));
    }
    errors
}
