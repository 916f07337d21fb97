//! Validation of mutating admission policies.

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::Value;

use super::validation::definition;
use crate::builtin::admissionregistration::matching::{REINVOCATION_POLICIES, compiles};
use crate::expression::{Compiler, ResultType};
use crate::validate::{list, one_of, text};

/// What there is to be changed about.
pub(in crate::builtin::admissionregistration) const MUTATING_OPERATIONS: [&str; 4] =
    ["*", "CONNECT", "CREATE", "UPDATE"];
const PATCH_TYPES: [&str; 2] = ["ApplyConfiguration", "JSONPatch"];

/// Validates a mutating policy; `old` is the object before an update.
pub(super) fn validate(object: &Value, old: Option<&Value>, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    let compiler = definition(spec, old, true, Some(&MUTATING_OPERATIONS), errors);
    let (mutations, at) = (list(spec, "mutations"), path.child("mutations"));
    if mutations.is_empty() {
        let detail = "mutations must contain at least one item";
        errors.push(Error::required(&at, detail));
    }
    for (index, it) in mutations.iter().enumerate() {
        mutation(it, &compiler, &at.index(index), errors);
    }
    let at = path.child("reinvocationPolicy");
    let policy = text(spec, "reinvocationPolicy");
    one_of(policy, &REINVOCATION_POLICIES, true, &at, errors);
}

fn mutation(value: &Value, compiler: &Compiler, path: &Path, errors: &mut ErrorList) {
    let kind = text(value, "patchType");
    let (own, other, wanted) = match kind {
        "JSONPatch" => ("jsonPatch", "applyConfiguration", ResultType::Operations),
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch", ResultType::Applied),
        _ => {
            one_of(kind, &PATCH_TYPES, true, &path.child("patchType"), errors);
            return;
        }
    };
    let at = path.child(own);
    if value[own].is_object() {
        let (expression, at) = (
            text(&value[own], "expression").trim(),
            at.child("expression"),
        );
        if expression.is_empty() {
            errors.push(Error::required(&at, ""));
        } else {
            compiles(&compiler.compile(expression, wanted, true), &at, errors);
        }
    } else {
        let detail = format!("must be specified when patchType is {kind}");
        errors.push(Error::required(&at, detail));
    }
    if value[other].is_object() {
        let detail = format!("must not be specified when patchType is {kind}");
        let shown = format!("{{{other}}}");
        errors.push(Error::invalid(&path.child(other), shown, detail));
    }
}
