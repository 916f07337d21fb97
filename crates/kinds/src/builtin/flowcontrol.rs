//! The kinds of `flowcontrol.apiserver.k8s.io`.

use std::collections::BTreeSet;

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::Value;

use crate::flow_defaults::mandatory;
use crate::registry::{ALL_METADATA, Builtin, CLUSTER, Generation, Rules, STATUS};
use crate::validate::{internal, list, text};

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

const SCHEMA: (&str, &str, &str) = ("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema");
const LEVEL: (&str, &str, &str) = (
    "flowcontrol.apiserver.k8s.io",
    "v1",
    "PriorityLevelConfiguration",
);

/// The mandatory objects cannot be changed.
fn fixed(object: &Value, plural: &str, errors: &mut ErrorList) {
    let name = text(&object["metadata"], "name");
    let Some(wanted) = mandatory(plural, name) else {
        return;
    };
    let adjustable = plural == "prioritylevelconfigurations" && name == "exempt";
    let mut spec = object["spec"].clone();
    if adjustable {
        spec["exempt"] = wanted["exempt"].clone();
    }
    if spec != wanted {
        let detail = if adjustable {
            "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value".to_owned()
        } else {
            format!("spec of '{name}' must equal the fixed value")
        };
        let kind = if plural == "flowschemas" {
            SCHEMA
        } else {
            LEVEL
        };
        let shown = internal::shown(kind, &["spec"], &object["spec"]);
        errors.push(Error::invalid(&Path::new("spec"), shown, detail));
    }
}

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
