//! Nodes.

use allot_apimachinery::field::ErrorList;
use serde_json::Value;

use crate::registry::{Builtin, CLUSTER, PROXY, Rules, STATUS, UnsupportedField};
use crate::{table, validate, warnings};

pub(super) static NODE: Builtin = Builtin {
    kind: "Node",
    plural: "nodes",
    short: &["no"],
    subresources: &[("proxy", "NodeProxyOptions", "", "", PROXY), STATUS],
    rules: Rules {
        storage_prefix: "minions",
        initialize: Some(drop_config),
        prepare_update: Some(|node, old, _| {
            if old["status"]["config"].is_null() {
                drop_config(node);
            }
        }),
        validate: validate::node::validate,
        validate_update: Some(validate_update),
        validate_status: Some(|node, _, errors| validate::node::validate_status(node, errors)),
        warnings: warnings::node,
        selectable: &["spec.unschedulable"],
        unsupported_field: UnsupportedField::NotSupported,
        table: Some((
            "Name|Status|Roles|Age|Version|Internal-IP::1|External-IP::1|OS-Image::1|Kernel-Version::1|Container-Runtime::1",
            table::cluster::node,
        )),
        ..Rules::DEFAULT
    },
    ..CLUSTER
};

/// Removes the fields of dynamic kubelet configuration, which has been removed from Kubernetes.
fn drop_config(node: &mut Value) {
    for (part, key) in [("spec", "configSource"), ("status", "config")] {
        if let Some(Value::Object(part)) = node.get_mut(part) {
            part.remove(key);
        }
    }
}

fn validate_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    validate::node::validate_update(object, old, errors);
    // Upstream validates the taints of an update as those of a new node, too.
    let twice: Vec<_> = errors
        .iter()
        .filter(|error| error.field.starts_with("metadata.taints"))
        .cloned()
        .collect();
    errors.extend(twice);
}
