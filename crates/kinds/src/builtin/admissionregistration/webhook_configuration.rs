//! Configurations of admission webhooks.

use super::ADMISSION;
use crate::registry::{Builtin, Rules};
use crate::{table, validate};

pub(super) static MUTATING_WEBHOOK_CONFIGURATION: Builtin = Builtin {
    kind: "MutatingWebhookConfiguration",
    plural: "mutatingwebhookconfigurations",
    rules: Rules {
        validate: |configuration, errors| {
            validate::admission::configuration(configuration, None, errors)
        },
        validate_update: Some(|configuration, old, errors| {
            validate::admission::configuration(configuration, Some(old), errors)
        }),
        table: Some(("Name|Webhooks:integer|Age", table::control::webhooks)),
        ..ADMISSION.rules
    },
    ..ADMISSION
};

pub(super) static VALIDATING_WEBHOOK_CONFIGURATION: Builtin = Builtin {
    kind: "ValidatingWebhookConfiguration",
    plural: "validatingwebhookconfigurations",
    rules: Rules {
        validate: |configuration, errors| {
            validate::admission::configuration(configuration, None, errors)
        },
        validate_update: Some(|configuration, old, errors| {
            validate::admission::configuration(configuration, Some(old), errors)
        }),
        table: Some(("Name|Webhooks:integer|Age", table::control::webhooks)),
        ..ADMISSION.rules
    },
    ..ADMISSION
};
