use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn slice(
    pool: &str,
    generation: i64,
    count: i64,
    devices: usize,
    node: Option<&str>,
) -> Arc<ResourceSlice> {
    let devices: Vec<Value> = (0..devices)
        .map(|i| json!({"name": format!("d{i}")}))
        .collect();
    let mut spec = json!({
        "driver": "d.example.com", "devices": devices,
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
    });
    match node {
        Some(node) => spec["nodeName"] = json!(node),
        None => spec["allNodes"] = json!(true),
    }
    Arc::new(serde_json::from_value(json!({"metadata": {"name": pool}, "spec": spec})).unwrap())
}

fn claim(pool: &str, devices: &[&str]) -> Arc<ResourceClaim> {
    let results: Vec<Value> = devices
        .iter()
        .map(|d| json!({"request": "r", "driver": "d.example.com", "pool": pool, "device": d}))
        .collect();
    let claim = json!({"metadata": {}, "spec": {}, "status": {"allocation": {"devices": {"results": results}}}});
    Arc::new(serde_json::from_value(claim).unwrap())
}

fn request(spec: Value) -> ResourcePoolStatusRequestSpec {
    serde_json::from_value(spec).unwrap()
}

#[test]
fn devices_of_the_newest_generation_are_counted() {
    let slices = [
        slice("a", 1, 1, 9, Some("n")),
        slice("a", 2, 2, 3, Some("n")),
        slice("a", 2, 2, 1, Some("n")),
        slice("b", 1, 1, 2, None),
    ];
    let claims = [claim("a", &["d0", "d1"]), claim("b", &["d0"])];
    let answer = answer(
        &request(json!({"driver": "d.example.com"})),
        &slices,
        &claims,
        at(0),
    );
    assert_eq!(answer.incomplete, 0);
    assert_eq!(answer.status["poolCount"], 2);
    assert_eq!(
        answer.status["pools"],
        json!([
            {"driver": "d.example.com", "poolName": "a", "generation": 2, "resourceSliceCount": 2, "nodeName": "n",
             "totalDevices": 4, "allocatedDevices": 2, "unavailableDevices": 0, "availableDevices": 2},
            {"driver": "d.example.com", "poolName": "b", "generation": 1, "resourceSliceCount": 1,
             "totalDevices": 2, "allocatedDevices": 1, "unavailableDevices": 0, "availableDevices": 1},
        ])
    );
    let condition = &answer.status["conditions"][0];
    assert_eq!(condition["message"], "Calculated status for 2 pools");
}

#[test]
fn incomplete_pools_are_named_and_the_list_is_bounded() {
    let slices = [slice("a", 4, 3, 1, None), slice("b", 1, 1, 1, None)];
    let answer = answer(
        &request(json!({"driver": "d.example.com", "limit": 1})),
        &slices,
        &[],
        at(0),
    );
    assert_eq!(answer.incomplete, 1);
    assert_eq!(answer.status["pools"].as_array().unwrap().len(), 1);
    let error = "pool d.example.com/a is incomplete: observed 1/3 slices at generation 4";
    assert_eq!(answer.status["pools"][0]["validationError"], error);
    assert_eq!(
        answer.status["conditions"][0]["message"],
        "Calculated status for 2 pools (1 incomplete)"
    );
}

#[test]
fn requests_expire_a_day_after_creation_if_unanswered() {
    let request = |status: Value| -> ResourcePoolStatusRequest {
        serde_json::from_value(json!({
            "metadata": {"name": "r", "creationTimestamp": rfc3339(at(0))},
            "spec": {"driver": "d"}, "status": status,
        }))
        .unwrap()
    };
    assert_eq!(expires(&request(Value::Null), at(5)), at(24 * 3600));
    let answered = json!({"poolCount": 0, "conditions": [
        {"type": "Complete", "status": "True", "reason": "r", "message": "", "lastTransitionTime": rfc3339(at(60))},
    ]});
    assert_eq!(expires(&request(answered), at(5)), at(3660));
}
