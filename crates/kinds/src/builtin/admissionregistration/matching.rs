//! What policies, their bindings and webhooks share in validation: the requests that they match, and match conditions.

use std::collections::BTreeSet;

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::Value;

use super::match_rules;
use crate::expression::{Compiler, Expression, ResultType};
use crate::validate::{label_selector, list, one_of_set, rule, text};

/// The values of `failurePolicy`.
pub(super) const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];
/// The values of `reinvocationPolicy`.
pub(super) const REINVOCATION_POLICIES: [&str; 2] = ["IfNeeded", "Never"];
const MAX_CONDITIONS: usize = 64;

/// Which requests a policy or binding is about.
pub(super) fn match_resources(value: &Value, path: &Path, errors: &mut ErrorList) {
    let at = path.child("matchPolicy");
    one_of_set(
        &value["matchPolicy"],
        &match_rules::MATCH_POLICIES,
        true,
        &at,
        errors,
    );
    for key in ["namespaceSelector", "objectSelector"] {
        if value[key].is_object() {
            label_selector(&value[key], &path.child(key), errors);
        } else {
            errors.push(Error::required(&path.child(key), ""));
        }
    }
    for key in ["resourceRules", "excludeResourceRules"] {
        for (index, it) in list(value, key).iter().enumerate() {
            match_rules::named(it, &path.child(key).index(index), errors);
        }
    }
}

/// Conditions of a policy or webhook. They are checked apart from the policy's variables.
pub(super) fn match_conditions(
    conditions: &[Value],
    has_params: bool,
    path: &Path,
    errors: &mut ErrorList,
) {
    if conditions.len() > MAX_CONDITIONS {
        errors.push(Error::too_many(path, conditions.len(), MAX_CONDITIONS));
    }
    let compiler = Compiler::new(has_params, false);
    let mut seen = BTreeSet::new();
    // Each is compiled: those beyond the limit are not.
    for (index, condition) in conditions.iter().take(MAX_CONDITIONS).enumerate() {
        let at = path.index(index);
        let expression = text(condition, "expression").trim();
        let place = at.child("expression");
        if expression.is_empty() {
            errors.push(Error::required(&place, ""));
        } else {
            compiles(
                &compiler.compile(expression, ResultType::Bool, true),
                &place,
                errors,
            );
        }
        let (name, place) = (text(condition, "name"), at.child("name"));
        if name.is_empty() {
            errors.push(Error::required(&place, ""));
            continue;
        }
        rule(names::qualified_name(name), name, &place, errors);
        if !seen.insert(name) {
            errors.push(Error::duplicate(&place, name));
        }
    }
}

pub(super) fn compiles(expression: &Expression, path: &Path, errors: &mut ErrorList) {
    if let Err(error) = &expression.program {
        let detail = error.to_string();
        errors.push(Error::invalid(path, expression.text.as_str(), detail));
    }
}
