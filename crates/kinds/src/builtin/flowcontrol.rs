//! The kinds of `flowcontrol.apiserver.k8s.io`.

use std::collections::BTreeSet;

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::Value;

use crate::registry::{ALL_METADATA, Builtin, CLUSTER, Generation, Rules, STATUS};
use crate::validate::{list, text};

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
        validate_status: Some(|object, _, errors| validate_conditions(object, errors)),
        checks_metadata_change: |_| false,
        ..Rules::DEFAULT
    },
    ..CLUSTER
};

/// Checks the conditions in a status.
fn validate_conditions(object: &Value, errors: &mut ErrorList) {
    let path = Path::new("status").child("conditions");
    let mut seen = BTreeSet::new();
    for (index, condition) in list(&object["status"], "conditions").iter().enumerate() {
        let at = path.index(index).child("type");
        let kind = text(condition, "type");
        if !seen.insert(kind) {
            errors.push(Error::duplicate(&at, kind));
        }
        if kind.is_empty() {
            errors.push(Error::required(&at, ""));
        }
    }
}
