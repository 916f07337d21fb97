//! Deployments.

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::{Value, json};

use super::APPS;
use crate::object::meta;
use crate::registry::{Builtin, Rules, SCALE, STATUS};
use crate::table::age;
use crate::table::format::{self, number, with_template};
use crate::validate::workloads::{
    self, Counts, amount, at_most_all, matching_template, numbers, selector, unknown_strategy,
};
use crate::validate::{int_or_percent, not_negative, text};
use crate::warnings;

pub(super) static DEPLOYMENT: Builtin = Builtin {
    kind: "Deployment",
    plural: "deployments",
    short: &["deploy"],
    subresources: &[SCALE, STATUS],
    rules: Rules {
        fill_bookmark: |object| object["spec"]["replicas"] = json!(0),
        // Changes of annotations count, too: they are copied to replica sets.
        spec_changed: |new, old| {
            new["metadata"]["annotations"] != old["metadata"]["annotations"]
                || new["spec"] != old["spec"]
        },
        // The revision is an annotation that is written with the status; labels are not.
        status_keeps: &["labels"],
        reset_fields: &[("status", &[&["spec"], &["metadata", "labels"]])],
        warnings_create: Some(warnings::new_template),
        validate,
        validate_update: Some(validate_update),
        validate_status: Some(|object, old, errors| {
            workloads::validate_status(&COUNTS, object, old, errors)
        }),
        table: Some((
            "Name|Ready|Up-to-date|Available|Age|Containers::1|Images::1|Selector::1",
            row,
        )),
        ..APPS.rules
    },
    ..APPS
};

const COUNTS: Counts = Counts {
    not_negative: &[
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "collisionCount",
    ],
    within_replicas: &["updatedReplicas", "readyReplicas", "availableReplicas"],
    more_than_ready: "cannot be greater than readyReplicas",
};

fn validate(object: &Value, errors: &mut ErrorList) {
    validate_spec(&object["spec"], &Path::new("spec"), errors);
}

fn validate_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    validate(object, errors);
    workloads::immutable_selector(object, old, errors);
}

fn validate_spec(spec: &Value, path: &Path, errors: &mut ErrorList) {
    not_negative(&spec["replicas"], &path.child("replicas"), errors);
    selector(spec, "deployment", path, errors);
    matching_template(spec, "ReplicaSet", path, errors);
    validate_strategy(&spec["strategy"], &path.child("strategy"), errors);
    let keys = [
        "minReadySeconds",
        "revisionHistoryLimit",
        "progressDeadlineSeconds",
    ];
    numbers(spec, &keys, path, errors);
    let ready = spec["minReadySeconds"].as_i64().unwrap_or_default();
    if let Some(deadline) = spec["progressDeadlineSeconds"]
        .as_i64()
        .filter(|deadline| *deadline <= ready)
    {
        let at = path.child("progressDeadlineSeconds");
        let detail = "must be greater than minReadySeconds";
        errors.push(Error::invalid(&at, deadline, detail));
    }
}

fn validate_strategy(strategy: &Value, path: &Path, errors: &mut ErrorList) {
    let rolling = &strategy["rollingUpdate"];
    match text(strategy, "type") {
        "Recreate" => {
            if rolling.is_object() {
                let detail = "may not be specified when strategy `type` is 'Recreate'";
                errors.push(Error::forbidden(&path.child("rollingUpdate"), detail));
            }
        }
        "RollingUpdate" => {
            let at = path.child("rollingUpdate");
            for key in ["maxUnavailable", "maxSurge"] {
                int_or_percent(&rolling[key], &at.child(key), errors);
            }
            let unavailable = &rolling["maxUnavailable"];
            if amount(unavailable) == 0 && amount(&rolling["maxSurge"]) == 0 {
                let detail = "may not be 0 when `maxSurge` is 0";
                errors.push(Error::invalid(
                    &at.child("maxUnavailable"),
                    unavailable,
                    detail,
                ));
            }
            at_most_all(unavailable, &at.child("maxUnavailable"), errors);
        }
        other => {
            let shown = unknown_strategy(other, rolling);
            let known = ["Recreate", "RollingUpdate"];
            errors.push(Error::not_supported(path, shown, &known));
        }
    }
}

fn row(object: &Value) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let ready = format!(
        "{}/{}",
        number(&status["readyReplicas"]),
        number(&spec["replicas"])
    );
    let cells = vec![
        json!(meta(object, "name")),
        json!(ready),
        number(&status["updatedReplicas"]),
        number(&status["availableReplicas"]),
        age(object),
    ];
    // No selector is an empty text here, unlike for other workloads.
    let selector = match format::label_selector(&spec["selector"]) {
        none if none == "<none>" => String::new(),
        selector => selector,
    };
    with_template(object, cells, selector)
}
