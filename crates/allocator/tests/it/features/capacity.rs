//! What requests take of capacities: defaults, policies, rounding.

use serde_json::{Value, json};

use crate::make::{check, claim, device, problem, read, request, slice};
use allot_allocator::problem::Problem;

/// One shareable device with 8 units and a policy, and a request for some of it.
fn shared(policy: Value, asked: Option<&str>) -> Problem {
    let mut capacity = json!({"value": "8"});
    if !policy.is_null() {
        capacity["requestPolicy"] = policy;
    }
    let fields = json!({"allowMultipleAllocations": true, "capacity": {"mem": capacity}});
    let wanted = asked.map_or(
        json!({}),
        |amount| json!({"capacity": {"requests": {"mem": amount}}}),
    );
    problem(
        vec![slice("p", vec![device("a", fields)], json!({}))],
        vec![claim("c", vec![request("r", 1, wanted)], json!({}))],
    )
}

/// What the request gets, or `nothing`.
fn taken(policy: Value, asked: Option<&str>) -> String {
    let (text, results) =
        crate::make::solve(&shared(policy, asked), &allot_allocator::Limits::default());
    let Some(result) = results.first() else {
        return text;
    };
    let result = &result.devices.as_ref().unwrap().results.as_ref().unwrap()[0];
    result.consumed_capacity.as_ref().unwrap()["mem"].0.clone()
}

#[test]
fn without_a_policy() {
    assert_eq!(taken(Value::Null, None), "8");
    assert_eq!(taken(Value::Null, Some("3")), "3");
    assert_eq!(taken(Value::Null, Some("1500m")), "1500m");
    assert_eq!(taken(Value::Null, Some("9")), "nothing");
}

#[test]
fn the_default_is_for_requests_that_do_not_say() {
    let policy = json!({"default": "2", "validValues": ["2", "4"]});
    assert_eq!(taken(policy, None), "2");
}

#[test]
fn values_are_rounded_up_to_valid_ones() {
    let policy = || json!({"default": "2", "validValues": ["2", "4"]});
    assert_eq!(taken(policy(), Some("1")), "2");
    assert_eq!(taken(policy(), Some("3")), "4");
    assert_eq!(taken(policy(), Some("5")), "nothing");
}

#[test]
fn ranges_have_a_minimum_steps_and_a_maximum() {
    let policy = || json!({"default": "1", "validRange": {"min": "1", "max": "6", "step": "2"}});
    assert_eq!(taken(policy(), Some("500m")), "1");
    assert_eq!(taken(policy(), Some("2")), "3");
    assert_eq!(taken(policy(), Some("3500m")), "5");
    assert_eq!(taken(policy(), Some("6")), "nothing");
    let open = json!({"default": "1", "validRange": {"min": "1"}});
    assert_eq!(taken(open, Some("7500m")), "7500m");
}

#[test]
fn a_capacity_that_the_device_does_not_have() {
    let mut made = shared(Value::Null, None);
    let wanted = request("r", 1, json!({"capacity": {"requests": {"other": "1"}}}));
    made.claims = vec![read(claim("c", vec![wanted], json!({})))];
    check(&made, "nothing");
}

#[test]
fn all_capacities_have_to_fit() {
    let fields = |used: &str| json!({"allowMultipleAllocations": true, "capacity": {"mem": {"value": "8"}, "slots": {"value": used}}});
    let wanted = json!({"capacity": {"requests": {"mem": "1"}}});
    let mut made = problem(
        vec![slice(
            "p",
            vec![device("a", fields("2")), device("b", fields("2"))],
            json!({}),
        )],
        vec![claim("c", vec![request("r", 1, wanted)], json!({}))],
    );
    // The request does not name the slots, so it takes all of them.
    made.consumed_capacity = read(
        json!([{"driver": "gpu.example.com", "pool": "p", "device": "a", "capacity": {"slots": "1"}}]),
    );
    check(&made, "r=p/b");
}

#[test]
fn requests_for_capacity_select_among_devices_for_one() {
    let sized =
        |name: &str, size: &str| device(name, json!({"capacity": {"mem": {"value": size}}}));
    let wanted = json!({"capacity": {"requests": {"mem": "40Gi"}}});
    let made = problem(
        vec![slice(
            "p",
            vec![sized("a", "20Gi"), sized("b", "80Gi")],
            json!({}),
        )],
        vec![claim("c", vec![request("r", 1, wanted)], json!({}))],
    );
    let results = check(&made, "r=p/b");
    let result = &results[0]
        .devices
        .as_ref()
        .unwrap()
        .results
        .as_ref()
        .unwrap()[0];
    assert_eq!(
        (&result.share_id, &result.consumed_capacity),
        (&None, &None)
    );
}

#[test]
fn requests_for_capacity_need_the_feature() {
    let mut made = shared(Value::Null, Some("1"));
    made.features.retain(|f| f != "DRAConsumableCapacity");
    check(
        &made,
        "error: claim default/c, request r: has capacity requests, but the DRAConsumableCapacity feature is disabled",
    );
}
