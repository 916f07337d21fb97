use super::*;
use serde_json::Value;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// How many seconds a pod's condition, set at second 0, still holds at second 50.
fn check(reason: &str, status: &str, more: Value, expected: Option<u64>) {
    let mut pod = json!({
        "metadata": {"name": "p"},
        "status": {"phase": "Running", "conditions": [{
            "type": "DisruptionTarget", "status": status, "reason": reason,
            "lastTransitionTime": rfc3339(at(0)),
        }]},
    });
    for (part, fields) in more.as_object().unwrap() {
        for (field, value) in fields.as_object().unwrap() {
            pod[part][field] = value.clone();
        }
    }
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let left = wait(&pod, at(50)).map(|left| left.as_secs());
    assert_eq!(left, expected, "{reason} {status} {more}");
    assert!(expected.is_none() || wait(&pod, at(500)) == Some(Duration::ZERO));
}

#[test]
fn a_pod_that_stays_is_no_target_any_more() {
    check("EvictionByEvictionAPI", "True", json!({}), Some(70));
    check("PreemptionByScheduler", "False", json!({}), None);
    check("TerminationByKubelet", "True", json!({}), None);
    let ended = json!({"status": {"phase": "Failed"}});
    check("EvictionByEvictionAPI", "True", ended, None);
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    check("EvictionByEvictionAPI", "True", deleted, None);
}
