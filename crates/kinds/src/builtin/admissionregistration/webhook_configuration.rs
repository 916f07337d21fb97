//! Configurations of admission webhooks.

use serde_json::{Value, json};

use super::ADMISSION;
use crate::object::items;
use crate::registry::{Builtin, Rules};
use crate::table::age;
use crate::table::format::name;

mod validation;

pub(super) static MUTATING_WEBHOOK_CONFIGURATION: Builtin = Builtin {
    kind: "MutatingWebhookConfiguration",
    plural: "mutatingwebhookconfigurations",
    rules: RULES,
    ..ADMISSION
};

pub(super) static VALIDATING_WEBHOOK_CONFIGURATION: Builtin = Builtin {
    kind: "ValidatingWebhookConfiguration",
    plural: "validatingwebhookconfigurations",
    rules: RULES,
    ..ADMISSION
};

/// The rules of both kinds.
const RULES: Rules = Rules {
    validate: |configuration, errors| validation::validate(configuration, None, errors),
    validate_update: Some(|configuration, old, errors| {
        validation::validate(configuration, Some(old), errors)
    }),
    table: Some(("Name|Webhooks:integer|Age", row)),
    ..ADMISSION.rules
};

fn row(object: &Value) -> Vec<Value> {
    vec![
        name(object),
        json!(items(&object["webhooks"]).len()),
        age(object),
    ]
}
