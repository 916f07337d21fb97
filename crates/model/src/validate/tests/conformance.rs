//! The cases that were recorded from Kubernetes 1.36.

use std::collections::BTreeSet;

use allot_apimachinery::field::ErrorList;
use allot_testing::outcome::Outcomes;
use allot_testing::recordings;
use serde_json::Value;

use super::super::*;

fn run(case: &Value) -> ErrorList {
    let (object, old) = (case.at("object"), case.at("oldObject"));
    let mut features = Features::default();
    for (name, on) in case.entries("featureGates").iter() {
        let feature = Feature::from_name(name).unwrap_or_else(|| panic!("unknown gate {name}"));
        features = features.with(feature, on.as_bool().unwrap());
    }
    let kind = Kind::from_name(object.text("kind")).unwrap();
    match case.text("operation") {
        operation if operation.ends_with("StatusUpdate") => status_update(kind, object, old),
        operation if operation.ends_with("Update") => update(kind, object, old, &features),
        _ => create(kind, object, &features),
    }
}

/// Puts back what got lost when a case was written as JSON: a blank inside raw parameters, lists that are empty but
/// not nil, and a deletion time that is set but zero.
fn restore(case: &mut Value) {
    const LONG: [(&str, &str); 4] = [
        (
            "TestValidateClassUpdate/invalid-config-too-large",
            "/spec/config/0/opaque/parameters/str",
        ),
        (
            "TestValidateClaimStatusUpdate/configuration",
            "/status/allocation/devices/config/6/opaque/parameters/str",
        ),
        (
            "TestValidateClaimStatusUpdate/invalid-data-device-status-limits",
            "/status/devices/0/data/str",
        ),
        (
            "TestValidateClaimStatusUpdate/invalid-data-device-status-limits-feature-gate",
            "/status/devices/0/data/str",
        ),
    ];
    let name = case.text("name").to_owned();
    let object = case.get_mut("object").unwrap();
    if let Some((_, pointer)) = LONG.iter().find(|(long, _)| *long == name) {
        let text = object.pointer_mut(pointer).unwrap();
        *text = Value::from(format!("{} ", text.as_str().unwrap()));
    }
    if name == "TestValidateClaimStatusUpdate/invalid-reserved-deleted" {
        object["metadata"]["deletionTimestamp"] = Value::from("2026-01-01T00:00:00Z");
        case["oldObject"]["metadata"]["deletionTimestamp"] = Value::from("2026-01-01T00:00:00Z");
    } else if name == "TestValidateResourceSlice/bad-list-attribute" {
        for (device, key) in [
            (1, "strings"),
            (4, "bools"),
            (5, "ints"),
            (6, "strings"),
            (7, "versions"),
        ] {
            object["spec"]["devices"][device]["attributes"]["foo"][key] = Value::Array(Vec::new());
        }
    }
}

/// The messages that are missing or that upstream does not have.
fn compare(case: &Value) -> Result<(), String> {
    let expected: BTreeSet<String> = case
        .list("errors")
        .iter()
        .map(|error| error.text("message").to_owned())
        .collect();
    let found: BTreeSet<String> = run(case).iter().map(ToString::to_string).collect();
    if found == expected {
        return Ok(());
    }
    let missing: Vec<_> = expected.difference(&found).collect();
    let extra: Vec<_> = found.difference(&expected).collect();
    Err(format!("\n  missing: {missing:#?}\n  extra: {extra:#?}"))
}

#[test]
fn validates_like_upstream() {
    let mut outcomes = Outcomes::new("validation");
    for mut recording in recordings::read("validation") {
        restore(&mut recording.document);
        outcomes.add(&recording.name, compare(&recording.document));
    }
    outcomes.finish();
}
