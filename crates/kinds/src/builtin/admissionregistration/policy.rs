//! Validating and mutating admission policies.

use super::ADMISSION;
use crate::registry::{ALL_METADATA, Builtin, Rules, STATUS};
use crate::{table, validate};

pub(super) static MUTATING_ADMISSION_POLICY: Builtin = Builtin {
    kind: "MutatingAdmissionPolicy",
    plural: "mutatingadmissionpolicies",
    rules: Rules {
        validate: |policy, errors| validate::admission::mutating_policy(policy, None, errors),
        validate_update: Some(|policy, old, errors| {
            validate::admission::mutating_policy(policy, Some(old), errors)
        }),
        table: Some((
            "Name|Mutations:integer|ParamKind|Age",
            table::control::admission_policy,
        )),
        ..ADMISSION.rules
    },
    ..ADMISSION
};

pub(super) static VALIDATING_ADMISSION_POLICY: Builtin = Builtin {
    kind: "ValidatingAdmissionPolicy",
    plural: "validatingadmissionpolicies",
    subresources: &[STATUS],
    rules: Rules {
        validate: |policy, errors| validate::admission::policy(policy, None, errors),
        validate_update: Some(|policy, old, errors| {
            validate::admission::policy(policy, Some(old), errors)
        }),
        validate_status: Some(|policy, _, errors| {
            validate::admission::policy_status(policy, errors)
        }),
        status_keeps: ALL_METADATA,
        status_ignores_deletion: true,
        table: Some((
            "Name|Validations:integer|ParamKind|Age",
            table::control::admission_policy,
        )),
        ..ADMISSION.rules
    },
    ..ADMISSION
};
