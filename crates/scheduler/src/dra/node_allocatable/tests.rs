use super::*;
use serde_json::{Value, json};

fn check(mapping: Value, result: Value, expected: &[(&str, &str)]) {
    let slice = json!({
        "metadata": {"name": "s"},
        "spec": {
            "driver": "d", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "x", "nodeAllocatableResourceMappings": mapping}, {"name": "y"}],
        },
    });
    let mut mappings = Mappings::default();
    mappings.set(&serde_json::from_value(slice).expect("a slice"));
    let allocation = json!({"devices": {"results": result}});
    let allocation = serde_json::from_value(allocation).expect("an allocation");
    let found = mappings.of(&allocation);
    let found: Vec<(&str, &str)> = found
        .iter()
        .map(|(n, q)| (n.as_str(), q.0.as_str()))
        .collect();
    assert_eq!(found, expected);
    mappings.remove("s");
    assert!(mappings.is_empty());
}

fn result(device: &str) -> Value {
    json!({"request": "r", "driver": "d", "pool": "p", "device": device})
}

#[test]
fn a_multiplier_counts_per_device() {
    let mapping =
        json!({"memory": {"allocationMultiplier": "2Gi"}, "cpu": {"allocationMultiplier": "500m"}});
    check(
        mapping.clone(),
        json!([result("x"), result("y")]),
        &[("cpu", "500m"), ("memory", "2Gi")],
    );
    check(
        mapping,
        json!([result("x"), result("x")]),
        &[("cpu", "1"), ("memory", "4Gi")],
    );
}

#[test]
fn a_capacity_counts_as_far_as_it_is_consumed() {
    let mut share = result("x");
    share["consumedCapacity"] = json!({"cores": "8"});
    let twice = json!({"cpu": {"capacityKey": "cores", "allocationMultiplier": "2"}});
    check(twice, json!([share]), &[("cpu", "16")]);
    let half = json!({"cpu": {"capacityKey": "cores", "allocationMultiplier": "500m"}});
    check(half, json!([share]), &[("cpu", "4")]);
    let plain = json!({"cpu": {"capacityKey": "cores"}});
    check(plain.clone(), json!([share]), &[("cpu", "8")]);
    check(plain, json!([result("x")]), &[]);
}
