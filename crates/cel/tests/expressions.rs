//! What Kubernetes 1.36's own compiler and evaluator answered to many different expressions.
//!
//! `expressions.jsonl`: devices in the first line, then one expression a line with its letters (`s` for expressions that
//! were stored, `c` and `l` for the features `DRAConsumableCapacity` and `DRAListTypeAttributes`), the highest cost, the
//! result, the cost that it had, and the error of either step.

use allot_cel::device::{Device, Options, compile};
use serde_json::{Value, json};

const RECORDED: &str = include_str!("expressions.jsonl");

/// Our answer in the form of the recorded one.
fn answer(expression: &str, letters: &str, device: &Device) -> Value {
    let options = Options {
        stored: letters.contains('s'),
        consumable_capacity: letters.contains('c'),
        list_type_attributes: letters.contains('l'),
        ..Options::default()
    };
    let selector = match compile(expression, &options) {
        Ok(selector) => selector,
        Err(error) => return json!([null, null, null, error.to_string()]),
    };
    let most = selector.max_cost();
    match selector.matches_with_cost(device) {
        (Ok(matches), cost) => json!([most, matches, cost, null]),
        (Err(error), cost) => json!([most, null, cost, error.to_string()]),
    }
}

#[test]
fn expressions_have_the_answers_of_kubernetes() {
    let mut lines = RECORDED.lines().map(|line| {
        let value: Value = serde_json::from_str(line).expect("JSON");
        value
    });
    let devices = lines.next().expect("the devices");
    let device = |name: &str| {
        let device = &devices[name];
        Device::from_json(device["driver"].as_str().expect("a name"), device)
    };
    let (whole, without_lists) = (device("device"), device("withoutLists"));
    let mut failures = Vec::new();
    let mut count = 0;
    for line in lines {
        let (expression, letters) = (line[0].as_str(), line[1].as_str());
        let (expression, letters) = (expression.expect("text"), letters.expect("text"));
        let device = match letters.contains('l') {
            true => &whole,
            false => &without_lists,
        };
        let expected = json!([line[2], line[3], line[4], line[5]]);
        let found = answer(expression, letters, device);
        count += 1;
        if found != expected {
            failures.push(format!(
                "{expression} ({letters}): want {expected}, got {found}"
            ));
        }
    }
    let (some, failed) = (failures.join("\n"), failures.len());
    assert!(failed == 0, "{failed} of {count}:\n{some}");
}
