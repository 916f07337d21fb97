use super::*;
use serde_json::{Value, json};

fn claim(reported: Value) -> ResourceClaim {
    serde_json::from_value(json!({
        "metadata": {"name": "c", "namespace": "ns"},
        "spec": {},
        "status": {
            "allocation": {
                "allocationTimestamp": "2026-01-01T00:00:00Z",
                "devices": {"results": [
                    {"request": "r", "driver": "d", "pool": "p", "device": "x", "bindingConditions": ["a", "b"], "bindingFailureConditions": ["f"]},
                    {"request": "r", "driver": "d", "pool": "p", "device": "plain"},
                ]},
            },
            "devices": reported,
        },
    }))
    .expect("fixture")
}

fn device(conditions: &[(&str, &str)]) -> Value {
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|(t, s)| json!({"type": t, "status": s, "reason": "Why", "message": "because", "lastTransitionTime": "2026-01-01T00:00:00Z"}))
        .collect();
    json!([{"driver": "d", "pool": "p", "device": "x", "conditions": conditions}])
}

fn check(reported: Value, expected: &Readiness) {
    assert_eq!(readiness(&claim(reported.clone())), *expected, "{reported}");
}

#[test]
fn all_conditions_have_to_be_true() {
    check(json!([]), &Readiness::Waiting);
    check(device(&[("a", "True")]), &Readiness::Waiting);
    check(
        device(&[("a", "True"), ("b", "False")]),
        &Readiness::Waiting,
    );
    check(device(&[("a", "True"), ("b", "True")]), &Readiness::Ready);
    check(
        device(&[("a", "True"), ("b", "True"), ("f", "False")]),
        &Readiness::Ready,
    );
}

#[test]
fn one_failure_is_enough() {
    let failed = Readiness::Failed {
        reason: "Why".to_owned(),
        message: "because".to_owned(),
    };
    check(
        device(&[("a", "True"), ("b", "True"), ("f", "True")]),
        &failed,
    );
}

#[test]
fn waiting_is_hopeless_after_the_deadline() {
    let at = |seconds: i64| {
        "2026-01-01T00:00:00Z".parse::<Timestamp>().expect("valid")
            + Duration::from_secs(seconds as u64)
    };
    let timeout = Duration::from_secs(10);
    assert!(!is_hopeless(&claim(json!([])), timeout, at(9)));
    assert!(is_hopeless(&claim(json!([])), timeout, at(10)));
    assert!(!is_hopeless(
        &claim(device(&[("a", "True"), ("b", "True")])),
        timeout,
        at(99)
    ));
    assert!(is_hopeless(
        &claim(device(&[("f", "True")])),
        timeout,
        at(0)
    ));
}
