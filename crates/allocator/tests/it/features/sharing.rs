//! Devices for several at once: shares, admin access.

use serde_json::{Value, json};

use crate::make::{check, claim, device, plain, problem, read, request, slice};
use allot_allocator::problem::Problem;

fn shareable(name: &str, size: &str) -> Value {
    device(
        name,
        json!({"allowMultipleAllocations": true, "capacity": {"mem": {"value": size}}}),
    )
}

fn take(name: &str, amount: &str) -> Value {
    request(name, 1, json!({"capacity": {"requests": {"mem": amount}}}))
}

fn made(devices: Vec<Value>, claims: Vec<Value>) -> Problem {
    problem(vec![slice("p", devices, json!({}))], claims)
}

#[test]
fn several_requests_share_a_device_until_it_is_full() {
    let devices = || vec![shareable("a", "8"), shareable("b", "8")];
    let requests = vec![take("r", "5"), take("s", "3"), take("t", "1")];
    let results = check(
        &made(devices(), vec![claim("c", requests, json!({}))]),
        "r=p/a s=p/a t=p/b",
    );
    let list = results[0]
        .devices
        .as_ref()
        .unwrap()
        .results
        .as_ref()
        .unwrap();
    let ids: Vec<_> = list
        .iter()
        .map(|r| r.share_id.as_deref().unwrap())
        .collect();
    assert_eq!(ids, ["share-1", "share-2", "share-3"]);
    let claims = vec![
        claim("c", vec![take("r", "5")], json!({})),
        claim("d", vec![take("r", "3")], json!({})),
    ];
    check(&made(devices(), claims), "r=p/a; r=p/a");
}

#[test]
fn a_request_never_gets_two_shares_of_a_device() {
    let two = request("r", 2, json!({"capacity": {"requests": {"mem": "1"}}}));
    check(
        &made(
            vec![shareable("a", "8")],
            vec![claim("c", vec![two.clone()], json!({}))],
        ),
        "nothing",
    );
    check(
        &made(
            vec![shareable("a", "8"), shareable("b", "8")],
            vec![claim("c", vec![two], json!({}))],
        ),
        "r=p/a r=p/b",
    );
}

#[test]
fn what_others_have_counts() {
    let mut used = made(
        vec![shareable("a", "8"), shareable("b", "8")],
        vec![claim("c", vec![take("r", "4")], json!({}))],
    );
    used.consumed_capacity = read(
        json!([{"driver": "gpu.example.com", "pool": "p", "device": "a", "capacity": {"mem": "5"}}]),
    );
    check(&used, "r=p/b");
}

#[test]
fn an_exclusive_device_is_not_shared() {
    let mut used = made(
        vec![shareable("a", "8")],
        vec![claim("c", vec![take("r", "1")], json!({}))],
    );
    used.allocated_devices =
        read(json!([{"driver": "gpu.example.com", "pool": "p", "device": "a"}]));
    check(&used, "nothing");
}

#[test]
fn without_the_feature_nothing_is_shared() {
    let requests = vec![request("r", 1, json!({})), request("s", 1, json!({}))];
    let mut off = made(
        vec![shareable("a", "8")],
        vec![claim("c", requests, json!({}))],
    );
    off.features.retain(|f| f != "DRAConsumableCapacity");
    check(&off, "nothing");
}

#[test]
fn earlier_shares_move_for_later_ones() {
    // On a, 3 and 6 do not fit together, and only a has room for 6.
    let requests = vec![take("r", "3"), take("s", "6")];
    check(
        &made(
            vec![shareable("a", "8"), shareable("b", "4")],
            vec![claim("c", requests, json!({}))],
        ),
        "r=p/b s=p/a",
    );
}

fn admin(name: &str) -> Value {
    request(name, 1, json!({"adminAccess": true}))
}

#[test]
fn admins_get_devices_that_are_in_use() {
    let mut used = made(plain(&["a"]), vec![claim("c", vec![admin("r")], json!({}))]);
    used.allocated_devices =
        read(json!([{"driver": "gpu.example.com", "pool": "p", "device": "a"}]));
    let results = check(&used, "r=p/a");
    let result = &results[0]
        .devices
        .as_ref()
        .unwrap()
        .results
        .as_ref()
        .unwrap()[0];
    assert_eq!(result.admin_access, Some(true));
}

#[test]
fn a_claim_does_not_get_a_device_twice_even_as_admin() {
    let claims = vec![claim("c", vec![admin("r"), admin("s")], json!({}))];
    check(&made(plain(&["a"]), claims.clone()), "nothing");
    check(&made(plain(&["a", "b"]), claims), "r=p/a s=p/b");
}

#[test]
fn order_matters_between_admin_and_other_claims() {
    let normal = claim("n", vec![request("r", 1, json!({}))], json!({}));
    let admin = claim("a", vec![admin("r")], json!({}));
    check(
        &made(plain(&["a"]), vec![normal.clone(), admin.clone()]),
        "r=p/a; r=p/a",
    );
    // As upstream: what an admin looks at in the same attempt is in use for the claims behind.
    check(&made(plain(&["a"]), vec![admin, normal]), "nothing");
}
