//! Admission policies and their bindings.

use std::collections::BTreeSet;

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::Value;

use super::{label_selector, list, one_of, rule, text};
use crate::expression::{Compiler, Expression, ResultType};
use crate::object::split_api_version;

mod mutations;
mod rules;
mod validations;
mod webhooks;

pub(crate) use mutations::{mutating_binding, mutating_policy};
pub(crate) use webhooks::configuration;

/// `failurePolicy`.
const FAILURE_POLICIES: [&str; 2] = ["Fail", "Ignore"];
const ACTIONS: [&str; 3] = ["Audit", "Deny", "Warn"];
/// `reinvocationPolicy`.
const REINVOCATION_POLICIES: [&str; 2] = ["IfNeeded", "Never"];
const MAX_CONDITIONS: usize = 64;

/// Validates a validating policy; `old` is the object before an update.
pub(crate) fn policy(object: &Value, old: Option<&Value>, errors: &mut ErrorList) {
    let spec = &object["spec"];
    let composed = !list(spec, "variables").is_empty();
    let compiler = definition(spec, old, composed, None, errors);
    validations::all(object, &compiler, errors);
}

/// Checks what is reported about a policy: warnings about its expressions, and conditions.
pub(crate) fn policy_status(object: &Value, errors: &mut ErrorList) {
    let (status, path) = (&object["status"], Path::new("status"));
    let at = path.child("typeChecking").child("expressionWarnings");
    let warnings = list(&status["typeChecking"], "expressionWarnings");
    for (index, warning) in warnings.iter().enumerate() {
        for key in ["warning", "fieldRef"] {
            let is_set = match text(warning, key) {
                value if key == "fieldRef" => !value.trim().is_empty(),
                value => !value.is_empty(),
            };
            if !is_set {
                errors.push(Error::required(&at.index(index).child(key), ""));
            }
        }
    }
    let conditions = list(status, "conditions");
    let at = path.child("conditions");
    errors.extend(allot_model::validate::conditions(conditions, &at));
}

/// Validates the part common to validating and mutating policies; `operations` are the allowed operations of rules.
fn definition(
    spec: &Value,
    old: Option<&Value>,
    composed: bool,
    operations: Option<&[&str]>,
    errors: &mut ErrorList,
) -> Compiler {
    let path = Path::new("spec");
    let has_params = spec["paramKind"].is_object();
    let failure = text(spec, "failurePolicy");
    let at = path.child("failurePolicy");
    one_of(failure, &FAILURE_POLICIES, true, &at, errors);
    if has_params {
        param_kind(&spec["paramKind"], &path.child("paramKind"), errors);
    }
    let (constraints, at) = (&spec["matchConstraints"], path.child("matchConstraints"));
    if constraints.is_object() {
        match_resources(constraints, &at, errors);
        if list(constraints, "resourceRules").is_empty() {
            errors.push(Error::required(&at.child("resourceRules"), ""));
        }
        rules::only(constraints, operations, &at, errors);
    } else {
        errors.push(Error::required(&at, ""));
    }
    let same = |key: &str| old.is_some_and(|old| old["spec"][key] == spec[key]);
    if !(same("paramKind") && same("matchConditions")) {
        let at = path.child("matchConditions");
        match_conditions(list(spec, "matchConditions"), has_params, &at, errors);
    }
    let mut compiler = Compiler::new(has_params, composed);
    for (index, it) in list(spec, "variables").iter().enumerate() {
        let at = path.child("variables").index(index);
        variable(it, &mut compiler, &at, errors);
    }
    compiler
}

/// Checks what bindings of validating and mutating policies have in common.
fn bound(spec: &Value, operations: Option<&[&str]>, errors: &mut ErrorList) {
    let path = Path::new("spec");
    let policy = text(spec, "policyName");
    let at = path.child("policyName");
    if policy.is_empty() {
        errors.push(Error::required(&at, ""));
    } else {
        rule(names::dns1123_subdomain(policy), policy, &at, errors);
    }
    if spec["paramRef"].is_object() {
        param_ref(&spec["paramRef"], &path.child("paramRef"), errors);
    }
    let (resources, at) = (&spec["matchResources"], path.child("matchResources"));
    if resources.is_object() {
        match_resources(resources, &at, errors);
        rules::only(resources, operations, &at, errors);
    }
}

/// Checks the binding of a validating policy.
pub(crate) fn binding(object: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    bound(spec, None, errors);
    let at = path.child("validationActions");
    let actions = list(spec, "validationActions");
    let mut seen = BTreeSet::new();
    for (index, action) in actions.iter().enumerate() {
        let name = action.as_str().unwrap_or_default();
        if !ACTIONS.contains(&name) {
            errors.push(Error::not_supported(&at.index(index), name, &ACTIONS));
        }
        if !seen.insert(name) {
            errors.push(Error::duplicate(&at.index(index), name));
        }
    }
    let has = |action: &str| actions.iter().any(|it| it == action);
    if has("Deny") && has("Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API \
                      response and headers serves no purpose)";
        errors.push(Error::invalid(&at, &spec["validationActions"], detail));
    }
    if actions.is_empty() {
        let detail = "at least one validation action is required";
        errors.push(Error::required(&at, detail));
    }
}

/// The kind of a policy's parameters.
fn param_kind(value: &Value, path: &Path, errors: &mut ErrorList) {
    let (api_version, kind) = (text(value, "apiVersion"), text(value, "kind"));
    let at = path.child("apiVersion");
    match api_version.matches('/').count() {
        _ if api_version.is_empty() => errors.push(Error::required(&at, "")),
        0 | 1 => {
            let (group, version) = match api_version {
                "/" => ("", ""),
                named => split_api_version(named),
            };
            let texts = names::dns1123_subdomain(group);
            if !group.is_empty() && !texts.is_empty() {
                errors.push(Error::invalid(&at, group, texts.join(",")));
            }
            let texts = names::dns1035_label(version);
            if version.is_empty() {
                errors.push(Error::invalid(
                    &at,
                    api_version,
                    "version must be specified",
                ));
            } else if !texts.is_empty() {
                errors.push(Error::invalid(&at, version, texts.join(",")));
            }
        }
        _ => {
            let detail = format!("unexpected GroupVersion string: {api_version}");
            errors.push(Error::invalid(&at, api_version, detail));
        }
    }
    let at = path.child("kind");
    let texts = names::dns1035_label(&kind.to_lowercase());
    if kind.is_empty() {
        errors.push(Error::required(&at, ""));
    } else if !texts.is_empty() {
        let detail = format!(
            "may have mixed case, but should otherwise match: {}",
            texts.join(",")
        );
        errors.push(Error::invalid(&at, kind, detail));
    }
}

/// The objects that a binding refers to.
fn param_ref(value: &Value, path: &Path, errors: &mut ErrorList) {
    let exclusive = "name and selector are mutually exclusive";
    let (name, has_selector) = (text(value, "name"), value["selector"].is_object());
    if !name.is_empty() {
        let at = path.child("name");
        rule(names::path_segment_name(name), name, &at, errors);
        if has_selector {
            errors.push(Error::forbidden(&at, exclusive));
        }
    }
    if has_selector {
        let at = path.child("selector");
        label_selector(&value["selector"], &at, errors);
        if !name.is_empty() {
            errors.push(Error::forbidden(&at, exclusive));
        }
    } else if name.is_empty() {
        let detail = "one of name or selector must be specified";
        errors.push(Error::required(path, detail));
    }
    let action = text(value, "parameterNotFoundAction");
    let at = path.child("parameterNotFoundAction");
    one_of(action, &["Deny", "Allow"], true, &at, errors);
}

/// Which requests a policy or binding is about.
fn match_resources(value: &Value, path: &Path, errors: &mut ErrorList) {
    let at = path.child("matchPolicy");
    one_of(
        text(value, "matchPolicy"),
        &rules::MATCH_POLICIES,
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
            rules::named(it, &path.child(key).index(index), errors);
        }
    }
}

/// Conditions of a policy or webhook. They are checked apart from the policy's variables.
fn match_conditions(conditions: &[Value], has_params: bool, path: &Path, errors: &mut ErrorList) {
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

fn compiles(expression: &Expression, path: &Path, errors: &mut ErrorList) {
    if let Err(error) = &expression.program {
        errors.push(Error::invalid(path, expression.text.as_str(), error));
    }
}

fn variable(value: &Value, compiler: &mut Compiler, path: &Path, errors: &mut ErrorList) {
    let (name, expression) = (text(value, "name"), text(value, "expression"));
    let at = path.child("name");
    if name.trim().is_empty() {
        errors.push(Error::required(&at, "name is not specified"));
    } else if !is_identifier(name) {
        errors.push(Error::invalid(&at, name, "must be a valid CEL identifier"));
    }
    let at = path.child("expression");
    if expression.trim().is_empty() {
        errors.push(Error::required(&at, "expression is not specified"));
    } else {
        compiles(&compiler.variable(name, expression), &at, errors);
    }
}

/// An identifier that is not reserved in CEL.
fn is_identifier(name: &str) -> bool {
    let letter = |byte: u8| byte == b'_' || byte.is_ascii_alphabetic();
    let mut bytes = name.bytes();
    bytes.next().is_some_and(letter)
        && bytes.all(|byte| letter(byte) || byte.is_ascii_digit())
        && !allot_schema::rules::RESERVED.contains(&name)
}
