//! Validating and mutating admission policies.

use serde_json::{Value, json};

use super::{ADMISSION, MUTATING};
use crate::object::{self, items};
use crate::registry::{ALL_METADATA, Builtin, Rules, STATUS};
use crate::table::age;
use crate::table::format::name;

mod mutating;
mod validation;
mod validations;

pub(super) use mutating::MUTATING_OPERATIONS;

pub(super) static MUTATING_ADMISSION_POLICY: Builtin = Builtin {
    kind: "MutatingAdmissionPolicy",
    plural: "mutatingadmissionpolicies",
    deprecated: &[
        (
            "v1beta1",
            "v1.37",
            "v1.40",
            "admissionregistration.k8s.io/v1 MutatingAdmissionPolicy",
        ),
        ("v1alpha1", "v1.35", "v1.38", ""),
    ],
    rules: Rules {
        validate: |policy, errors| mutating::validate(policy, None, errors),
        validate_update: Some(|policy, old, errors| mutating::validate(policy, Some(old), errors)),
        table: Some(("Name|Mutations:integer|ParamKind|Age", row)),
        ..ADMISSION.rules
    },
    ..MUTATING
};

pub(super) static VALIDATING_ADMISSION_POLICY: Builtin = Builtin {
    kind: "ValidatingAdmissionPolicy",
    plural: "validatingadmissionpolicies",
    subresources: &[STATUS],
    rules: Rules {
        validate: |policy, errors| validation::validate(policy, None, errors),
        validate_update: Some(|policy, old, errors| {
            validation::validate(policy, Some(old), errors)
        }),
        validate_status: Some(|policy, _, errors| validation::validate_status(policy, errors)),
        status_keeps: ALL_METADATA,
        status_ignores_deletion: true,
        warnings_status: Some(super::reserved_name),
        table: Some(("Name|Validations:integer|ParamKind|Age", row)),
        ..ADMISSION.rules
    },
    ..ADMISSION
};

fn row(object: &Value) -> Vec<Value> {
    let spec = &object["spec"];
    let count = items(&spec["validations"]).len() + items(&spec["mutations"]).len();
    let kind = match &spec["paramKind"] {
        Value::Null => "<unset>".to_owned(),
        kind => format!(
            "{}/{}",
            object::text(kind, &["apiVersion"]),
            object::text(kind, &["kind"])
        ),
    };
    vec![name(object), json!(count), json!(kind), age(object)]
}
