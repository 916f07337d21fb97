//! Device selectors against recorded results of Kubernetes 1.36: `conformance/cel`.

use std::{fs, path::PathBuf};

use allot_cel::device::{Device, Options, compile};
use serde_json::Value;

fn folder() -> Option<PathBuf> {
    let base = std::env::var_os("ALLOT_CONFORMANCE_DIR").map_or_else(
        || {
            PathBuf::from(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../../../shared/conformance"
            ))
        },
        PathBuf::from,
    );
    let folder = base.join("cel");
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: {} does not exist", folder.display());
    None
}

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

#[test]
fn recorded_cases() {
    let Some(folder) = folder() else {
        return;
    };
    let (mut count, mut failures) = (0, Vec::new());
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let case: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let outcome = run(&case);
        count += 1;
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
                failures.push(format!(
                    "{}: {key}: want {}, got {}",
                    path.display(),
                    case[key],
                    outcome[key]
                ));
            }
        }
    }
    assert!(count > 0, "no cases");
    assert!(
        failures.is_empty(),
        "{} of {count} cases:\n{}",
        failures.len(),
        failures.join("\n")
    );
}
