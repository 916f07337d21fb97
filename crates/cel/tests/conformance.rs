//! Device selectors against recorded results of Kubernetes 1.36: `conformance/cel`.

use allot_cel::device::{Device, Options, compile};
use allot_testing::outcome::Outcomes;
use allot_testing::recordings;
use serde_json::Value;

/// What our implementation makes of a case, in the form of its recorded outcome.
fn run(case: &Value) -> Value {
    let mut outcome = serde_json::Map::new();
    let feature = |name: &str| case["features"][name].as_bool().unwrap_or(false);
    let options = Options {
        consumable_capacity: feature("DRAConsumableCapacity"),
        list_type_attributes: feature("DRAListTypeAttributes"),
        stored: case["envType"] == "StoredExpressions",
        ..Options::default()
    };
    let device = &case["device"];
    let device = Device::from_json(device["driver"].as_str().unwrap_or_default(), device);
    match compile(case["expression"].as_str().unwrap_or_default(), &options) {
        Err(error) => {
            outcome.insert("compileError".to_owned(), error.to_string().into());
        }
        Ok(selector) => {
            outcome.insert("maxCost".to_owned(), selector.max_cost().into());
            match selector.matches_with_cost(&device) {
                (Ok(matches), cost) => {
                    outcome.insert("matches".to_owned(), matches.into());
                    outcome.insert("actualCost".to_owned(), cost.into());
                }
                (Err(error), cost) => {
                    outcome.insert("evaluationError".to_owned(), error.to_string().into());
                    outcome.insert("actualCost".to_owned(), cost.into());
                }
            }
        }
    }
    outcome.into()
}

/// The keys of an outcome in which ours differs from the recorded one.
fn compare(case: &Value) -> Result<(), String> {
    let outcome = run(case);
    let mut differences = Vec::new();
    for key in [
        "compileError",
        "maxCost",
        "matches",
        "evaluationError",
        "actualCost",
    ] {
        // A device that cannot be evaluated has no cost upstream.
        let recorded_nothing = key == "actualCost" && case[key].is_null();
        if case[key] != outcome[key] && !recorded_nothing {
            differences.push(format!("{key}: want {}, got {}", case[key], outcome[key]));
        }
    }
    if differences.is_empty() {
        return Ok(());
    }
    Err(differences.join("; "))
}

#[test]
fn recorded_cases() {
    let mut outcomes = Outcomes::new("cel");
    for recording in recordings::read("cel") {
        outcomes.add(&recording.name, compare(&recording.document));
    }
    outcomes.finish();
}
