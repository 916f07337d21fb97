//! The kinds of `admissionregistration.k8s.io`.

use serde_json::Value;

use crate::object::meta;
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
        warnings: reserved_name,
        ..Rules::DEFAULT
    },
    ..CLUSTER
};

/// The kinds of mutating policies, which have versions of all stages.
const MUTATING: Builtin = Builtin {
    versions: &["v1", "!v1beta1", "!v1alpha1"],
    since: &[("v1", 36), ("v1beta1", 34), ("v1alpha1", 32)],
    stored_until: Some(("v1beta1", 36)),
    ..ADMISSION
};

/// The suffix of names that are reserved for configurations which a server reads from files.
const OF_FILES: &str = ".static.k8s.io";

fn reserved_name(object: &Value) -> Vec<String> {
    let is_reserved = meta(object, "name").ends_with(OF_FILES);
    let warning = is_reserved.then(|| {
        format!(
            "metadata.name: names ending with \"{OF_FILES}\" are reserved for static manifest-based configurations and cannot be managed via the API"
        )
    });
    warning.into_iter().collect()
}
