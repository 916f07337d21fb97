//! The results of Kubernetes 1.36.2 on recorded problems, reproduced device for device.
//!
//! The recordings are in the folder named by `ALLOT_CONFORMANCE_DIR`; without it the tests say so and pass.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use allot_allocator::problem::{NodeResult, Problem, Solution};
use allot_allocator::{Allocator, Limits, Outcome, SelectorCache};
use allot_apimachinery::quantity::Quantity;
use serde_json::Value;

fn folder(name: &str) -> Option<PathBuf> {
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/conformance");
    let root = std::env::var_os("ALLOT_CONFORMANCE_DIR")
        .map_or_else(|| PathBuf::from(default), PathBuf::from);
    let folder = root.join(name);
    if !folder.is_dir() {
        println!("skipped: there is no {}", folder.display());
        return None;
    }
    Some(folder)
}

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
                Err(error) => result.error = Some(error),
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

fn read_lines(path: &Path) -> Vec<String> {
    let file = std::fs::File::open(path).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(file)
        .read_to_string(&mut text)
        .unwrap();
    text.lines().map(str::to_owned).collect()
}

fn report(total: usize, failures: &[String]) {
    for failure in failures {
        println!("{failure}");
    }
    println!("{} of {total} as upstream", total - failures.len());
    assert!(failures.is_empty(), "{} of {total} differ", failures.len());
}

#[test]
fn recorded_cases() {
    let Some(folder) = folder("allocator") else {
        return;
    };
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    paths.sort();
    let selectors = SelectorCache::new();
    let mut failures = Vec::new();
    for path in &paths {
        let text = std::fs::read_to_string(path).unwrap();
        let problem: Problem = serde_json::from_str(&text).unwrap();
        let raw: Value = serde_json::from_str(&text).unwrap();
        let expected = NodeResult {
            node: problem.nodes()[0].name().to_string(),
            allocations: serde_json::from_value(raw["allocations"].clone()).unwrap(),
            error: raw["error"].as_str().map(str::to_owned),
        };
        if let Err(difference) = compare(&expected, &solve(&problem, &selectors)[0]) {
            failures.push(format!("{}: {difference}", problem.name));
        }
    }
    report(paths.len(), &failures);
}

/// Problems in which upstream is wrong, and not repeated even for comparison: `distinctAttribute`
/// with a count above one, of which it compares only the last device.
const DIFFERENT: [&str; 2] = ["rand-1000176", "rand-1000605"];

#[test]
fn random_problems() {
    let Some(folder) = folder("allocator-random") else {
        return;
    };
    let expected: BTreeMap<String, Solution> = read_lines(&folder.join("expected.jsonl.gz"))
        .iter()
        .map(|line| serde_json::from_str::<Solution>(line).unwrap())
        .map(|solution| (solution.name.clone(), solution))
        .collect();
    let problems = read_lines(&folder.join("cases.jsonl.gz"));
    let selectors = SelectorCache::new();
    let mut failures = Vec::new();
    for line in &problems {
        let problem: Problem = serde_json::from_str(line).unwrap();
        if DIFFERENT.contains(&problem.name.as_str()) {
            continue;
        }
        let found = solve(&problem, &selectors);
        for (expected, found) in expected[&problem.name].results.iter().zip(&found) {
            if let Err(difference) = compare(expected, found) {
                failures.push(format!("{}: {difference}", problem.name));
                break;
            }
        }
    }
    report(problems.len() - DIFFERENT.len(), &failures);
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
    let lines = include_str!("../random.jsonl").lines();
    let mut failures = Vec::new();
    let mut total = 0;
    for line in lines {
        let line: Line = serde_json::from_str(line).unwrap();
        total += 1;
        let found = solve(&line.problem, &selectors);
        assert_eq!(line.results.len(), found.len(), "{}", line.problem.name);
        for (expected, found) in line.results.iter().zip(&found) {
            if let Err(difference) = compare(expected, found) {
                failures.push(format!("{}: {difference}", line.problem.name));
            }
        }
    }
    assert!(total > 100, "{total} problems");
    report(total, &failures);
}
