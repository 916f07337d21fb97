//! The kinds of `flowcontrol.apiserver.k8s.io`.

use crate::registry::{ALL_METADATA, Builtin, CLUSTER, Generation, Rules, STATUS};
use crate::validate;

mod flow_schema;
mod priority_level_configuration;

/// The kinds of the group.
pub(super) const KINDS: &[&Builtin] = &[
    &flow_schema::FLOW_SCHEMA,
    &priority_level_configuration::PRIORITY_LEVEL_CONFIGURATION,
];

/// What the kinds of the group have in common.
const FLOW: Builtin = Builtin {
    group: "flowcontrol.apiserver.k8s.io",
    subresources: &[STATUS],
    rules: Rules {
        generation: Generation::FromCreate,
        status_keeps: ALL_METADATA,
        status_ignores_identity: true,
        validate_status: Some(|object, _, errors| validate::flow::conditions(object, errors)),
        checks_metadata_change: |_| false,
        ..Rules::DEFAULT
    },
    ..CLUSTER
};
