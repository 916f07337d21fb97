//! Stateful sets.

use allot_apimachinery::names;
use allot_model::features::Features;
use serde_json::{Value, json};

use super::APPS;
use crate::object::{items, meta};
use crate::registry::{Builtin, Rules, SCALE, STATUS};
use crate::table::age;
use crate::table::format::{containers, number};
use crate::validate::workloads::{self, Counts};
use crate::warnings;

mod validation;

pub(super) static STATEFUL_SET: Builtin = Builtin {
    kind: "StatefulSet",
    plural: "statefulsets",
    short: &["sts"],
    subresources: &[SCALE, STATUS],
    rules: Rules {
        fill_bookmark: |object| object["spec"]["replicas"] = json!(0),
        name: names::dns1123_label,
        drop_disabled: Some(drop_disabled),
        validate: validation::validate,
        validate_update: Some(validation::validate_update),
        validate_status: Some(|object, old, errors| {
            workloads::validate_status(&COUNTS, object, old, errors)
        }),
        warnings_create: Some(|set| {
            [warnings::template(set), claims(set, ""), history(set)].concat()
        }),
        warnings_update: Some(|set, old| {
            let changed = warnings::after_change(set, old, warnings::template);
            [changed, claims(set, ".Spec"), history(set)].concat()
        }),
        table: Some(("Name|Ready|Age|Containers::1|Images::1", row)),
        ..APPS.rules
    },
    ..APPS
};

/// Warnings about the claims of volumes; upstream's path differs between creation and update.
fn claims(set: &Value, part: &str) -> Vec<String> {
    let claims = items(&set["spec"]["volumeClaimTemplates"]).iter();
    let about = |(index, claim): (usize, &Value)| {
        let place = format!("spec.volumeClaimTemplates[{index}]{part}");
        warnings::pod::claim_spec(&claim["spec"], &place)
    };
    claims.enumerate().flat_map(about).collect()
}

/// The warning about a history without a bound.
fn history(set: &Value) -> Vec<String> {
    let limit = set["spec"]["revisionHistoryLimit"].as_i64();
    let text = "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended";
    limit
        .filter(|limit| *limit < 0)
        .map(|_| text.to_owned())
        .into_iter()
        .collect()
}

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

const COUNTS: Counts = Counts {
    not_negative: &[
        "replicas",
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
        "observedGeneration",
        "collisionCount",
    ],
    within_replicas: &[
        "readyReplicas",
        "currentReplicas",
        "updatedReplicas",
        "availableReplicas",
    ],
    more_than_ready: "cannot be greater than status.readyReplicas",
};

fn row(object: &Value) -> Vec<Value> {
    let ready = format!(
        "{}/{}",
        number(&object["status"]["readyReplicas"]),
        number(&object["spec"]["replicas"])
    );
    let (names, images) = containers(&object["spec"]["template"]["spec"]);
    vec![
        json!(meta(object, "name")),
        json!(ready),
        age(object),
        json!(names),
        json!(images),
    ]
}
