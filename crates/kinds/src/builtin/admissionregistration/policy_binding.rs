//! Bindings of admission policies.

use super::ADMISSION;
use crate::registry::{Builtin, Rules};
use crate::{table, validate};

pub(super) static MUTATING_ADMISSION_POLICY_BINDING: Builtin = Builtin {
    kind: "MutatingAdmissionPolicyBinding",
    plural: "mutatingadmissionpolicybindings",
    rules: Rules {
        validate: validate::admission::mutating_binding,
        table: Some((
            "Name|PolicyName|ParamRef|Age",
            table::control::admission_binding,
        )),
        ..ADMISSION.rules
    },
    ..ADMISSION
};

pub(super) static VALIDATING_ADMISSION_POLICY_BINDING: Builtin = Builtin {
    kind: "ValidatingAdmissionPolicyBinding",
    plural: "validatingadmissionpolicybindings",
    rules: Rules {
        validate: validate::admission::binding,
        table: Some((
            "Name|PolicyName|ParamRef|Age",
            table::control::admission_binding,
        )),
        ..ADMISSION.rules
    },
    ..ADMISSION
};
