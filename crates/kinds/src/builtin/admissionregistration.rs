//! The kinds of `admissionregistration.k8s.io`.

use crate::registry::{Builtin, CLUSTER, Generation, Rules, anything_changed};

mod match_rules;
mod matching;
mod policy;
mod policy_binding;
mod webhook_configuration;

/// The kinds of the group.
pub(super) const KINDS: &[&Builtin] = &[
    &policy::MUTATING_ADMISSION_POLICY,
    &policy::VALIDATING_ADMISSION_POLICY,
    &policy_binding::MUTATING_ADMISSION_POLICY_BINDING,
    &policy_binding::VALIDATING_ADMISSION_POLICY_BINDING,
    &webhook_configuration::MUTATING_WEBHOOK_CONFIGURATION,
    &webhook_configuration::VALIDATING_WEBHOOK_CONFIGURATION,
];

/// What the kinds of the group have in common.
const ADMISSION: Builtin = Builtin {
    group: "admissionregistration.k8s.io",
    categories: &["api-extensions"],
    rules: Rules {
        requires_version: |_| true,
        generation: Generation::FromCreate,
        spec_changed: anything_changed,
        own_finalizers: true,
        checks_metadata_change: |_| false,
        ..Rules::DEFAULT
    },
    ..CLUSTER
};
