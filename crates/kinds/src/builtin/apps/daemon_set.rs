//! Daemon sets.

use allot_apimachinery::field::{Error, ErrorList, Path};
use serde_json::{Value, json};

use super::APPS;
use crate::object::{child_mut, meta, metadata_mut};
use crate::registry::{Builtin, Resource, Rules, STATUS};
use crate::request::Part;
use crate::table::age;
use crate::table::format::{self, number, with_template};
use crate::validate::workloads::{
    self, Counts, amount, at_most_all, endless, is_empty, template_matches, unknown_strategy,
    working_selector,
};
use crate::validate::{int_or_percent, label_selector, not_negative, pod, text};
use crate::warnings;

pub(super) static DAEMON_SET: Builtin = Builtin {
    kind: "DaemonSet",
    plural: "daemonsets",
    short: &["ds"],
    subresources: &[STATUS],
    rules: Rules {
        fill_bookmark: |object| object["metadata"]["annotations"][TEMPLATE_GENERATION] = json!("0"),
        defaults: Some(default),
        partial_metadata: Some(partial_metadata),
        prepare_create: Some(|object| set_template_generation(object, 1)),
        prepare_update: Some(prepare_update),
        validate,
        validate_update: Some(validate_update),
        validate_status: Some(|object, old, errors| {
            workloads::validate_status(&COUNTS, object, old, errors)
        }),
        warnings_update: Some(|set, old| {
            let changed = set["spec"]["template"] != old["spec"]["template"];
            match changed {
                true => warnings::template(set),
                false => Vec::new(),
            }
        }),
        table: Some((
            "Name|Desired:integer|Current:integer|Ready:integer|Up-to-date:integer|Available:integer|Node Selector|Age|\
         Containers::1|Images::1|Selector::1",
            row,
        )),
        ..APPS.rules
    },
    ..APPS
};

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Writes the template generation of a daemon set to the annotation that old clients read.
fn set_template_generation(object: &mut Value, generation: i64) {
    metadata_mut(object);
    child_mut(&mut object["metadata"], "annotations").insert(
        TEMPLATE_GENERATION.to_owned(),
        generation.to_string().into(),
    );
}

/// Upstream's conversion writes the annotation always, so it is among the fields of every sender.
fn default(resource: &Resource, version: &str, object: &mut Value) {
    allot_schema::defaults::apply(&resource.group, version, &resource.kind, object);
    if object["metadata"]["annotations"][TEMPLATE_GENERATION].is_null() {
        set_template_generation(object, 0);
    }
}

fn prepare_update(object: &mut Value, old: &Value, part: Part) {
    if part == Part::Main {
        let known = old["metadata"]["annotations"][TEMPLATE_GENERATION].as_str();
        let known = known.and_then(|text| text.parse::<i64>().ok()).unwrap_or(1);
        let changed = object["spec"]["template"] != old["spec"]["template"];
        set_template_generation(object, known + i64::from(changed));
    }
}

/// Upstream stores the annotation outside of the metadata and writes it last.
fn partial_metadata(partial: &mut Value) {
    if let Some(annotations) = partial["metadata"]["annotations"].as_object_mut() {
        annotations.remove(TEMPLATE_GENERATION);
        if annotations.is_empty()
            && let Some(metadata) = partial["metadata"].as_object_mut()
        {
            metadata.remove("annotations");
        }
    }
}

const COUNTS: Counts = Counts {
    not_negative: &[
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ],
    within_replicas: &[],
    more_than_ready: "",
};

fn validate(object: &Value, errors: &mut ErrorList) {
    validate_spec(&object["spec"], &Path::new("spec"), errors);
}

fn validate_update(object: &Value, old: &Value, errors: &mut ErrorList) {
    // The change is judged first.
    workloads::immutable_selector(object, old, errors);
    validate(object, errors);
}

fn validate_spec(spec: &Value, path: &Path, errors: &mut ErrorList) {
    let wanted = &spec["selector"];
    label_selector(wanted, &path.child("selector"), errors);
    if let Some(selector) = working_selector(spec) {
        template_matches(spec, selector.as_ref(), path, errors);
    }
    if wanted.is_object() && is_empty(wanted) {
        let detail = "empty selector is invalid for daemonset";
        let shown = crate::validate::internal::selector(wanted);
        errors.push(Error::invalid(&path.child("selector"), shown, detail));
    }
    let at = path.child("template");
    pod::template(&spec["template"], &at, errors);
    endless(spec, "DaemonSet", &at, errors);
    not_negative(
        &spec["minReadySeconds"],
        &path.child("minReadySeconds"),
        errors,
    );
    validate_strategy(
        &spec["updateStrategy"],
        &path.child("updateStrategy"),
        errors,
    );
    let at = path.child("revisionHistoryLimit");
    not_negative(&spec["revisionHistoryLimit"], &at, errors);
}

fn validate_strategy(strategy: &Value, path: &Path, errors: &mut ErrorList) {
    let rolling = &strategy["rollingUpdate"];
    match text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let at = path.child("rollingUpdate");
            let keys = ["maxUnavailable", "maxSurge"];
            for key in keys {
                int_or_percent(&rolling[key], &at.child(key), errors);
            }
            for key in keys {
                at_most_all(&rolling[key], &at.child(key), errors);
            }
            match keys.map(|key| amount(&rolling[key]) != 0) {
                [true, true] => {
                    let detail = "may not be set when maxUnavailable is non-zero";
                    let surge = &rolling["maxSurge"];
                    errors.push(Error::invalid(&at.child("maxSurge"), surge, detail));
                }
                [false, false] => {
                    let detail = "cannot be 0 when maxSurge is 0";
                    errors.push(Error::required(&at.child("maxUnavailable"), detail));
                }
                _ => {}
            }
        }
        other => {
            let shown = unknown_strategy(other, rolling);
            let known = ["RollingUpdate", "OnDelete"];
            errors.push(Error::not_supported(path, shown, &known));
        }
    }
}

fn row(object: &Value) -> Vec<Value> {
    let status = &object["status"];
    let cells = vec![
        json!(meta(object, "name")),
        number(&status["desiredNumberScheduled"]),
        number(&status["currentNumberScheduled"]),
        number(&status["numberReady"]),
        number(&status["updatedNumberScheduled"]),
        number(&status["numberAvailable"]),
        json!(format::labels(
            &object["spec"]["template"]["spec"]["nodeSelector"]
        )),
        age(object),
    ];
    with_template(
        object,
        cells,
        format::label_selector(&object["spec"]["selector"]),
    )
}
