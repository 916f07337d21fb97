//! Validation of validating admission policies, and what they share with mutating ones.

use allot_apimachinery::field::{Error, ErrorList, Path};
use allot_apimachinery::names;
use serde_json::Value;

use super::validations;
use crate::builtin::admissionregistration::match_rules;
use crate::builtin::admissionregistration::matching::{
    FAILURE_POLICIES, compiles, match_conditions, match_resources,
};
use crate::expression::Compiler;
use crate::object::split_api_version;
use crate::validate::{list, one_of_set, text};

/// Validates a validating policy; `old` is the object before an update.
pub(super) fn validate(object: &Value, old: Option<&Value>, errors: &mut ErrorList) {
    let spec = &object["spec"];
    let composed = !list(spec, "variables").is_empty();
    let compiler = definition(spec, old, composed, None, errors);
    validations::all(object, &compiler, errors);
}

/// Checks what is reported about a policy: warnings about its expressions, and conditions.
pub(super) fn validate_status(object: &Value, errors: &mut ErrorList) {
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
pub(super) fn definition(
    spec: &Value,
    old: Option<&Value>,
    composed: bool,
    operations: Option<&[&str]>,
    errors: &mut ErrorList,
) -> Compiler {
    let path = Path::new("spec");
    let has_params = spec["paramKind"].is_object();
    let at = path.child("failurePolicy");
    one_of_set(&spec["failurePolicy"], &FAILURE_POLICIES, true, &at, errors);
    if has_params {
        param_kind(&spec["paramKind"], &path.child("paramKind"), errors);
    }
    let (constraints, at) = (&spec["matchConstraints"], path.child("matchConstraints"));
    if constraints.is_object() {
        match_resources(constraints, &at, errors);
        if list(constraints, "resourceRules").is_empty() {
            errors.push(Error::required(&at.child("resourceRules"), ""));
        }
        match_rules::only(constraints, operations, &at, errors);
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
