use allot_reflector::{Readable as _, everything};
use serde_json::{Value, json};

use super::*;
use crate::controller::clock::Clock;

fn drain(evict: bool) -> Drain {
    Drain {
        driver: "d.example.com".to_owned(),
        node: Some("a".to_owned()),
        evict,
        clock: Clock::System,
        hold: None,
    }
}

fn slice(driver: &str, node: &str, devices: Value) -> Arc<Whole<ResourceSlice>> {
    let slice = json!({
        "metadata": {"name": format!("{node}-{driver}")},
        "spec": {
            "driver": driver, "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    });
    Arc::new(Whole::read(&slice.to_string(), everything).unwrap())
}

fn claim(name: &str, device: Value) -> Arc<ResourceClaim> {
    let claim = json!({
        "metadata": {"namespace": "ns", "name": name},
        "spec": {},
        "status": {"allocation": {"devices": {"results": [device]}}},
    });
    Arc::new(serde_json::from_value(claim).unwrap())
}

#[test]
fn only_the_drivers_slices_on_the_node_are_drained() {
    assert!(selects(
        &drain(false),
        &slice("d.example.com", "a", json!([]))
    ));
    assert!(!selects(
        &drain(false),
        &slice("d.example.com", "b", json!([]))
    ));
    assert!(!selects(
        &drain(false),
        &slice("e.example.com", "a", json!([]))
    ));
}

#[test]
fn tainting_is_idempotent_and_keeps_other_taints() {
    let devices = json!([{"name": "x", "taints": [{"key": "k", "effect": "NoExecute"}], "future": 1}, {"name": "y"}]);
    let once = tainted(&drain(false), &devices, "now").unwrap();
    assert_eq!(
        once,
        json!([
            {"name": "x", "future": 1, "taints": [
                {"key": "k", "effect": "NoExecute"},
                {"key": TAINT, "effect": "NoSchedule", "timeAdded": "now"},
            ]},
            {"name": "y", "taints": [{"key": TAINT, "effect": "NoSchedule", "timeAdded": "now"}]},
        ])
    );
    assert_eq!(tainted(&drain(false), &once, "later"), None);
    // Eviction requested later replaces the weaker taint.
    let evict = tainted(&drain(true), &once, "later").unwrap();
    assert_eq!(
        evict[1]["taints"],
        json!([{"key": TAINT, "effect": "NoExecute", "timeAdded": "later"}])
    );
}

#[test]
fn undoing_takes_only_the_taint_of_a_drain_away() {
    let devices = json!([{"name": "x", "taints": [{"key": "k", "effect": "NoExecute"}], "future": 1}, {"name": "y"}]);
    let drained = tainted(&drain(true), &devices, "now").unwrap();
    assert_eq!(untainted(&drained), Some((devices.clone(), 2)));
    assert_eq!(untainted(&devices), None);
}

#[test]
fn users_are_claims_with_a_device_of_these_slices() {
    let slices = [slice("d.example.com", "a", json!([{"name": "x"}]))];
    let result = |driver: &str, pool: &str, device: &str| json!({"request": "r", "driver": driver, "pool": pool, "device": device});
    let claims = [
        claim("two", result("d.example.com", "a", "x")),
        claim("other-pool", result("d.example.com", "b", "x")),
        claim("other-driver", result("e.example.com", "a", "x")),
        claim("one", result("d.example.com", "a", "x")),
    ];
    assert_eq!(users(&slices, &claims), ["ns/one", "ns/two"]);
}
