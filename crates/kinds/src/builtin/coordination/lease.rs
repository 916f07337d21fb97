//! Leases.

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::{Value, json};

use crate::object;
use crate::registry::{BASE, Builtin, Rules};
use crate::table::age;
use crate::table::format::name;

pub(super) static LEASE: Builtin = Builtin {
    group: "coordination.k8s.io",
    kind: "Lease",
    plural: "leases",
    rules: Rules {
        create_on_update: true,
        requires_version: |_| true,
        initialize: Some(|lease| drop_coordination(lease, &Value::Null)),
        prepare_update: Some(|lease, old, _| drop_coordination(lease, &old["spec"])),
        validate,
        own_finalizers: true,
        validates_metadata_again: false,
        table: Some(("Name|Holder|Age", row)),
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

fn validate(object: &Value, errors: &mut ErrorList) {
    let (spec, path) = (&object["spec"], Path::new("spec"));
    if let Some(seconds) = spec["leaseDurationSeconds"]
        .as_i64()
        .filter(|seconds| *seconds <= 0)
    {
        errors.push(Error::invalid(
            &path.child("leaseDurationSeconds"),
            seconds,
            "must be greater than 0",
        ));
    }
    if let Some(count) = spec["leaseTransitions"].as_i64().filter(|count| *count < 0) {
        let detail = "must be greater than or equal to 0";
        errors.push(Error::invalid(
            &path.child("leaseTransitions"),
            count,
            detail,
        ));
    }
}

fn row(object: &Value) -> Vec<Value> {
    vec![
        name(object),
        json!(object::text(object, &["spec", "holderIdentity"])),
        age(object),
    ]
}
