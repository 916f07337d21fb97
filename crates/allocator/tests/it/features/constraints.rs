//! `matchAttribute` and `distinctAttribute`, with single values and with sets.

use serde_json::{Value, json};

use crate::make::{all, check, claim, device, problem, request, slice};
use allot_allocator::problem::Problem;

fn rooted(names: &[(&str, Value)]) -> Vec<Value> {
    let devices = names
        .iter()
        .map(|(name, root)| device(name, json!({"attributes": {"root": root}})));
    vec![slice("p", devices.collect(), json!({}))]
}

fn same(requests: Vec<Value>, names: &[(&str, Value)]) -> Problem {
    let constraint = json!({"constraints": [{"matchAttribute": "gpu.example.com/root"}]});
    problem(rooted(names), vec![claim("c", requests, constraint)])
}

fn different(requests: Vec<Value>, names: &[(&str, Value)]) -> Problem {
    let constraint = json!({"constraints": [{"distinctAttribute": "gpu.example.com/root"}]});
    problem(rooted(names), vec![claim("c", requests, constraint)])
}

fn int(value: i64) -> Value {
    json!({"int": value})
}

fn ints(values: &[i64]) -> Value {
    json!({"ints": values})
}

#[test]
fn matching_devices_have_the_same_value() {
    let names = [("a", int(1)), ("b", int(2)), ("c", int(2))];
    check(
        &same(vec![request("r", 2, json!({}))], &names),
        "r=p/b r=p/c",
    );
    check(
        &same(
            vec![request("r", 1, json!({})), request("s", 1, json!({}))],
            &names,
        ),
        "r=p/b s=p/c",
    );
    check(&same(vec![request("r", 3, json!({}))], &names), "nothing");
}

#[test]
fn values_of_different_types_do_not_match() {
    let names = [
        ("a", int(1)),
        ("b", json!({"string": "1"})),
        ("c", json!({"version": "1.0.0"})),
    ];
    check(&same(vec![request("r", 2, json!({}))], &names), "nothing");
    check(
        &different(vec![request("r", 3, json!({}))], &names),
        "r=p/a r=p/b r=p/c",
    );
}

#[test]
fn devices_without_the_attribute_are_left_out() {
    let devices = vec![
        device("a", json!({})),
        device("b", json!({"attributes": {"root": {"int": 1}}})),
    ];
    let constraint = json!({"constraints": [{"matchAttribute": "gpu.example.com/root"}]});
    let made = problem(
        vec![slice("p", devices, json!({}))],
        vec![claim("c", vec![request("r", 1, json!({}))], constraint)],
    );
    check(&made, "r=p/b");
}

#[test]
fn the_domain_may_be_left_out_only_for_the_own_driver() {
    let devices = vec![
        device(
            "a",
            json!({"attributes": {"other.example.com/root": {"int": 1}}}),
        ),
        device(
            "b",
            json!({"attributes": {"gpu.example.com/root": {"int": 1}}}),
        ),
    ];
    let made = |attribute| {
        let constraint = json!({"constraints": [{"matchAttribute": attribute}]});
        problem(
            vec![slice("p", devices.clone(), json!({}))],
            vec![claim("c", vec![request("r", 1, json!({}))], constraint)],
        )
    };
    check(&made("gpu.example.com/root"), "r=p/b");
    check(&made("other.example.com/root"), "r=p/a");
    check(&made("third.example.com/root"), "nothing");
}

#[test]
fn a_constraint_can_be_for_some_requests() {
    let names = [("a", int(1)), ("b", int(2)), ("c", int(2)), ("d", int(3))];
    let requests = ["r", "s", "t"]
        .map(|name| request(name, 1, json!({})))
        .to_vec();
    let constraint = json!({"constraints": [{"requests": ["s", "t"], "matchAttribute": "gpu.example.com/root"}]});
    check(
        &problem(rooted(&names), vec![claim("c", requests, constraint)]),
        "r=p/a s=p/b t=p/c",
    );
}

#[test]
fn different_values_within_one_request() {
    // Upstream compares only with the last device of the request, and takes a, b and c.
    let names = [("a", int(1)), ("b", int(2)), ("c", int(1)), ("d", int(3))];
    check(
        &different(vec![request("r", 3, json!({}))], &names),
        "r=p/a r=p/b r=p/d",
    );
    check(
        &different(vec![request("r", 4, json!({}))], &names),
        "nothing",
    );
}

#[test]
fn different_values_over_requests() {
    let names = [("a", int(1)), ("b", int(1)), ("c", int(2))];
    let requests = vec![request("r", 1, json!({})), request("s", 1, json!({}))];
    check(&different(requests, &names), "r=p/a s=p/c");
}

#[test]
fn all_devices_that_violate_a_constraint_are_an_error() {
    let names = [("a", int(1)), ("b", int(2))];
    check(
        &same(vec![all("r", json!({}))], &names),
        "error: claim default/c, request r: cannot add device gpu.example.com/p/b because a claim constraint would not be satisfied",
    );
}

#[test]
fn a_constraint_of_no_known_kind_is_an_error() {
    let made = problem(
        rooted(&[("a", int(1))]),
        vec![claim(
            "c",
            vec![request("r", 1, json!({}))],
            json!({"constraints": [{}]}),
        )],
    );
    check(
        &made,
        "error: claim default/c, constraint #0: empty constraint (unsupported constraint type?)",
    );
}

fn with_lists(mut made: Problem) -> Problem {
    made.features.push("DRAListTypeAttributes".into());
    made
}

#[test]
fn sets_match_when_one_value_is_in_all() {
    let names = [
        ("a", ints(&[1, 2])),
        ("b", ints(&[2, 3])),
        ("c", ints(&[3])),
        ("d", int(2)),
    ];
    let made = |count| with_lists(same(vec![request("r", count, json!({}))], &names));
    check(&made(2), "r=p/a r=p/b");
    check(&made(3), "r=p/a r=p/b r=p/d");
    check(&made(4), "nothing");
}

#[test]
fn a_set_that_was_narrowed_widens_again() {
    // With a and b, {2} is left, which leads nowhere; a and c leave {1, 2}.
    let names = [
        ("a", ints(&[1, 2])),
        ("b", ints(&[2])),
        ("c", ints(&[1, 2])),
        ("d", ints(&[1])),
    ];
    check(
        &with_lists(same(vec![request("r", 3, json!({}))], &names)),
        "r=p/a r=p/b r=p/c",
    );
    let names = [
        ("a", ints(&[1, 2])),
        ("b", ints(&[2])),
        ("c", ints(&[1])),
        ("d", ints(&[1])),
    ];
    check(
        &with_lists(same(vec![request("r", 3, json!({}))], &names)),
        "r=p/a r=p/c r=p/d",
    );
}

#[test]
fn sets_differ_when_they_have_nothing_in_common() {
    let names = [
        ("a", ints(&[1, 2])),
        ("b", ints(&[2, 3])),
        ("c", ints(&[3, 4])),
    ];
    check(
        &with_lists(different(vec![request("r", 2, json!({}))], &names)),
        "r=p/a r=p/c",
    );
    check(
        &with_lists(different(vec![request("r", 3, json!({}))], &names)),
        "nothing",
    );
}

#[test]
fn empty_sets_satisfy_nothing() {
    let names = [("a", ints(&[])), ("b", ints(&[1]))];
    check(
        &with_lists(same(vec![request("r", 1, json!({}))], &names)),
        "r=p/b",
    );
    check(
        &with_lists(different(vec![request("r", 1, json!({}))], &names)),
        "r=p/b",
    );
}
