//! Leases.

use serde_json::Value;

use crate::registry::{BASE, Builtin, Rules};
use crate::{table, validate};

pub(super) static LEASE: Builtin = Builtin {
    group: "coordination.k8s.io",
    kind: "Lease",
    plural: "leases",
    rules: Rules {
        create_on_update: true,
        requires_version: |_| true,
        initialize: Some(|lease| drop_coordination(lease, &Value::Null)),
        prepare_update: Some(|lease, old, _| drop_coordination(lease, &old["spec"])),
        validate: validate::config::lease,
        own_finalizers: true,
        validates_metadata_again: false,
        table: Some(("Name|Holder|Age", table::cluster::lease)),
        ..Rules::DEFAULT
    },
    ..BASE
};

/// Removes the fields of coordinated leader election from a lease, unless it had them before: the feature is off by
/// default.
fn drop_coordination(lease: &mut Value, old: &Value) {
    if let Some(spec) = lease["spec"].as_object_mut() {
        for key in ["strategy", "preferredHolder"] {
            if old[key].is_null() {
                spec.remove(key);
            }
        }
    }
}
