use serde_json::json;

use super::*;

fn check(kind: Kind, object: Value, expected: Value) {
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    assert_eq!(Value::from(row(kind, &object, now)), expected);
    assert_eq!(columns(kind).len(), row(kind, &object, now).len());
}

#[test]
fn claims_show_their_state() {
    let state = |deleted: bool, allocated: bool, reserved: bool| {
        let mut claim = json!({"metadata": {}, "status": {}});
        if deleted {
            claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        if allocated {
            claim["status"]["allocation"] = json!({});
        }
        if reserved {
            claim["status"]["reservedFor"] = json!([{"uid": "u"}]);
        }
        claim_state(&claim)
    };
    assert_eq!(state(false, false, false), "pending");
    assert_eq!(state(false, true, false), "allocated");
    assert_eq!(state(false, true, true), "allocated,reserved");
    assert_eq!(state(true, false, false), "deleted");
    assert_eq!(state(true, true, false), "deleted,allocated");
    assert_eq!(state(true, true, true), "deleted,allocated,reserved");
}

#[test]
fn slices_and_rules_show_their_spec() {
    check(
        Kind::ResourceSlice,
        json!({"metadata": {"name": "s", "creationTimestamp": "2025-12-31T23:59:18Z"}, "spec": {"driver": "d", "pool": {"name": "p"}}}),
        json!(["s", "", "d", "p", "42s"]),
    );
    check(
        Kind::DeviceTaintRule,
        json!({"metadata": {"name": "r"}, "spec": {"taint": {"key": "k", "effect": "NoExecute", "timeAdded": "2025-12-31T22:00:00Z"}}}),
        json!(["r", "k", "", "NoExecute", "120m", "<unknown>"]),
    );
}

#[test]
fn pool_status_requests_show_totals_when_complete() {
    let condition = |kind: &str| json!([{"type": kind, "status": "True", "lastTransitionTime": "2025-12-31T23:59:00Z"}]);
    let object = |status: Value| json!({"metadata": {"name": "q"}, "spec": {"driver": "d"}, "status": status});
    let pool = json!({"totalDevices": 4, "allocatedDevices": 1, "availableDevices": 2, "unavailableDevices": 1});
    check(
        Kind::ResourcePoolStatusRequest,
        object(Value::Null),
        json!(["q", "d", "-", "-", "-", "-", "-", 0, "Pending", "<none>"]),
    );
    check(
        Kind::ResourcePoolStatusRequest,
        object(
            json!({"poolCount": 3, "pools": [pool, pool, {"validationError": "x"}], "conditions": condition("Complete")}),
        ),
        json!(["q", "d", "8", "4", "2", "2", "1", 3, "Complete", "60s"]),
    );
    check(
        Kind::ResourcePoolStatusRequest,
        object(json!({"poolCount": 3, "pools": [pool], "conditions": condition("Complete")})),
        json!([
            "q",
            "d",
            "4",
            "2",
            "1",
            "1",
            "0",
            3,
            "Complete (1/3 pools)",
            "60s"
        ]),
    );
    check(
        Kind::ResourcePoolStatusRequest,
        object(json!({"poolCount": 0, "conditions": condition("Failed")})),
        json!(["q", "d", "-", "-", "-", "-", "-", 0, "Failed", "60s"]),
    );
}

#[test]
fn durations_show_two_units() {
    const DAY: i64 = 86_400;
    let cases = [
        (-2, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (599, "9m59s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (8 * 3600 - 1, "7h59m"),
        (2 * DAY - 1, "47h"),
        (2 * DAY, "2d"),
        (8 * DAY - 1, "7d23h"),
        (730 * DAY - 1, "729d"),
        (730 * DAY, "2y"),
        (731 * DAY, "2y1d"),
        (8 * 365 * DAY, "8y"),
    ];
    for (seconds, expected) in cases {
        assert_eq!(human_duration(seconds), expected, "{seconds}");
    }
}
