//! The results of Kubernetes 1.36.2 on recorded problems, reproduced device for device.
//!
//! The recordings are in `tests/conformance`.

use std::collections::BTreeMap;
use std::path::Path;

use allot_allocator::problem::{NodeResult, Problem, Solution};
use allot_allocator::{Allocator, Limits, Outcome, SelectorCache};
use allot_apimachinery::quantity::Quantity;
use allot_testing::outcome::Outcomes;
use allot_testing::recordings;
use serde_json::Value;

fn solve(problem: &Problem, selectors: &SelectorCache) -> Vec<NodeResult> {
    let problem = Problem {
        upstream_errors: true,
        ..problem.clone()
    };
    let (cluster, claims) = (problem.cluster(), problem.claims(selectors));
    let mut allocator = Allocator::new();
    let solve = |node: &allot_allocator::Node| {
        let mut result = NodeResult {
            node: node.name().to_string(),
            ..NodeResult::default()
        };
        match allocator.allocate(&cluster, node, &claims, &Limits::default()) {
            Outcome::Allocated(found) => match found.results(&claims, &mut || "share".into()) {
                Ok(results) => result.allocations = Some(results),
                Err(error) => result.error = Some(error.to_string()),
            },
            Outcome::DoesNotFit => {}
            Outcome::Failed(error) => result.error = Some(error.text),
            other => result.error = Some(format!("{other:?}")),
        }
        result
    };
    problem.nodes().iter().map(solve).collect()
}

/// Brings results to a form in which equal means equal: canonical quantities, share IDs only as present, no empty lists.
fn normal(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if let Some(Value::Object(capacity)) = map.get_mut("consumedCapacity") {
                for quantity in capacity.values_mut() {
                    let parsed: Quantity = quantity.as_str().unwrap().parse().unwrap();
                    *quantity = parsed.nanos().to_string().into();
                }
            }
            if let Some(id) = map.get_mut("shareID") {
                *id = "present".into();
            }
            map.values_mut().for_each(normal);
            map.retain(|_, v| !v.is_null() && v.as_array().is_none_or(|a| !a.is_empty()));
        }
        Value::Array(list) => list.iter_mut().for_each(normal),
        _ => {}
    }
}

fn compare(expected: &NodeResult, found: &NodeResult) -> Result<(), String> {
    let shown = |result: &NodeResult| {
        let mut allocations = serde_json::to_value(&result.allocations).unwrap();
        normal(&mut allocations);
        if allocations.as_array().is_some_and(Vec::is_empty) {
            allocations = Value::Null;
        }
        (result.error.clone().unwrap_or_default(), allocations)
    };
    let (a, b) = (shown(expected), shown(found));
    if a == b {
        return Ok(());
    }
    Err(format!(
        "node {}\n  upstream: {} {}\n  here:     {} {}",
        expected.node, a.0, a.1, b.0, b.1
    ))
}

/// Compares node by node; one that was not recorded or not solved differs.
fn compare_all(expected: &[NodeResult], found: &[NodeResult]) -> Result<(), String> {
    if expected.len() != found.len() {
        return Err(format!(
            "{} nodes instead of {}",
            found.len(),
            expected.len()
        ));
    }
    expected
        .iter()
        .zip(found)
        .try_for_each(|(a, b)| compare(a, b))
}

#[test]
fn recorded_cases() {
    let selectors = SelectorCache::new();
    let mut outcomes = Outcomes::new("allocator");
    for recording in recordings::read("allocator") {
        let raw = recording.document;
        let problem: Problem = serde_json::from_value(raw.clone()).unwrap();
        let expected = NodeResult {
            node: problem.nodes()[0].name().to_string(),
            allocations: serde_json::from_value(raw["allocations"].clone()).unwrap(),
            error: raw["error"].as_str().map(str::to_owned),
        };
        let found = solve(&problem, &selectors);
        outcomes.add(&recording.name, compare(&expected, &found[0]));
    }
    outcomes.finish();
}

/// Compares the problems of a folder with their recorded results.
fn random(folder: &Path, selectors: &SelectorCache, outcomes: &mut Outcomes) {
    let mut expected: BTreeMap<String, Solution> =
        recordings::lines(&folder.join("expected.jsonl.gz"))
            .iter()
            .map(|line| serde_json::from_str::<Solution>(line).unwrap())
            .map(|solution| (solution.name.clone(), solution))
            .collect();
    for line in recordings::lines(&folder.join("cases.jsonl.gz")) {
        let problem: Problem = serde_json::from_str(&line).unwrap();
        let found = solve(&problem, selectors);
        let result = match expected.remove(&problem.name) {
            Some(expected) => compare_all(&expected.results, &found),
            None => Err("no recorded result".to_owned()),
        };
        outcomes.add(&problem.name, result);
    }
    assert!(expected.is_empty(), "results of no problem: {expected:?}");
}

#[test]
fn random_problems() {
    let selectors = SelectorCache::new();
    let mut outcomes = Outcomes::new("allocator-random");
    random(
        &recordings::folder().join("allocator-random"),
        &selectors,
        &mut outcomes,
    );
    // Another folder has its own problems or the very same ones, which cost seconds.
    let extra = recordings::extra().map(|extra| extra.join("allocator-random"));
    if let Some(extra) = extra.filter(|extra| extra.is_dir()) {
        random(&extra, &selectors, &mut outcomes);
    }
    outcomes.finish();
}

/// Results of the module `k8s.io/dynamic-resource-allocation` 0.36.2 on small random problems that use every feature,
/// with names and values of no meaning. They were chosen for different outcomes: sets of attributes, shares, counters,
/// binding conditions, node selection per device, alternatives, pools that are incomplete or invalid.
#[test]
fn problems_with_every_feature() {
    #[derive(serde::Deserialize)]
    struct Line {
        #[serde(flatten)]
        problem: Problem,
        results: Vec<NodeResult>,
    }
    let selectors = SelectorCache::new();
    let mut outcomes = Outcomes::new("every-feature");
    let mut total = 0;
    for line in include_str!("../random.jsonl").lines() {
        let line: Line = serde_json::from_str(line).unwrap();
        total += 1;
        let found = solve(&line.problem, &selectors);
        outcomes.add(&line.problem.name, compare_all(&line.results, &found));
    }
    assert!(total > 100, "{total} problems");
    outcomes.finish();
}
