//! Stateful sets.

use allot_apimachinery::names;
use allot_model::features::Features;
use serde_json::Value;

use super::APPS;
use crate::registry::{Builtin, Rules, SCALE, STATUS};
use crate::{table, validate};

pub(super) static STATEFUL_SET: Builtin = Builtin {
    kind: "StatefulSet",
    plural: "statefulsets",
    short: &["sts"],
    subresources: &[SCALE, STATUS],
    rules: Rules {
        name: names::dns1123_label,
        drop_disabled: Some(drop_disabled),
        validate: |object, errors| validate::apps::validate("statefulsets", object, errors),
        validate_update: Some(|object, old, errors| {
            validate::apps::validate_update("statefulsets", object, old, errors)
        }),
        validate_status: Some(|object, old, errors| {
            validate::apps::validate_status("statefulsets", object, old, errors)
        }),
        table: Some((
            "Name|Ready|Age|Containers::1|Images::1",
            table::workloads::stateful_set,
        )),
        ..APPS.rules
    },
    ..APPS
};

/// An upper bound of pods that are away during an update is not for stateful sets yet.
fn drop_disabled(_: &Features, new: &mut Value, old: &Value) {
    const BOUND: &str = "maxUnavailable";
    let bound = |set: &Value| !set["spec"]["updateStrategy"]["rollingUpdate"][BOUND].is_null();
    if !bound(old)
        && let Some(Value::Object(strategy)) = new.pointer_mut("/spec/updateStrategy/rollingUpdate")
    {
        strategy.remove(BOUND);
    }
}
