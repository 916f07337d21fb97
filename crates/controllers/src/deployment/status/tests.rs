use allot_reflector::{Readable, everything};

use super::*;
use crate::replicaset::Set;

/// The conditions after a turn, one a line: type, status, reason.
fn check(old: &Value, spec: Value, set: Value, turn: SyncResult, expected: &str) -> Value {
    let mut deployment = json!({
        "metadata": {"name": "d", "generation": 1},
        "spec": {"replicas": 2, "progressDeadlineSeconds": 10, "selector": {}, "template": {}},
        "status": old,
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        deployment["spec"][field] = value.clone();
    }
    let deployment = Object::read(&deployment.to_string(), everything).expect("a deployment");
    let spec = deployment.spec.clone().expect("a spec");
    let set = json!({
        "metadata": {"name": "d-1", "annotations": {"deployment.kubernetes.io/desired-replicas": "2"}},
        "spec": {"replicas": 2, "selector": {}, "template": {}},
        "status": set,
    });
    let set = Set::read(&set.to_string(), everything).expect("a replica set");
    let sets = Sets {
        all: vec![std::sync::Arc::new(set)],
        new: Some(0),
    };
    let now = "2026-01-01T00:00:20Z".parse().expect("a time");
    let (status, _) = next(&deployment, &spec, &sets, &turn, now);
    let lines = status["conditions"]
        .as_array()
        .expect("conditions")
        .iter()
        .map(|c| {
            let text = |field: &str| c[field].as_str().unwrap_or_default().to_owned();
            format!("{} {} {}", text("type"), text("status"), text("reason"))
        });
    assert_eq!(lines.collect::<Vec<_>>().join("\n"), expected);
    status
}

fn works(replicas: i32) -> Value {
    json!({"replicas": 2, "readyReplicas": replicas, "availableReplicas": replicas})
}

/// The condition that changed last comes last, as in `kubectl get -o yaml` of a real cluster.
#[test]
fn conditions_follow_a_rollout() {
    let made = check(
        &json!({}),
        json!({}),
        works(0),
        SyncResult::Rolled(Some("d-1".to_owned())),
        "Available False MinimumReplicasUnavailable\nProgressing True ReplicaSetUpdated",
    );
    let done = check(
        &made,
        json!({}),
        works(2),
        SyncResult::Rolled(None),
        "Available True MinimumReplicasAvailable\nProgressing True NewReplicaSetAvailable",
    );
    // A complete rollout is not evaluated again: not when pods are deleted, not while it is scaled.
    for turn in [SyncResult::Rolled(None), SyncResult::Scaled] {
        check(
            &done,
            json!({}),
            works(0),
            turn,
            "Progressing True NewReplicaSetAvailable\nAvailable False MinimumReplicasUnavailable",
        );
    }
    check(
        &done,
        json!({"paused": true}),
        works(2),
        SyncResult::Scaled,
        "Available True MinimumReplicasAvailable\nProgressing Unknown DeploymentPaused",
    );
    check(
        &done,
        json!({"progressDeadlineSeconds": i32::MAX}),
        works(2),
        SyncResult::Rolled(None),
        "Available True MinimumReplicasAvailable",
    );
}

#[test]
fn a_rollout_that_takes_too_long_says_so_once() {
    let waiting = json!({"replicas": 2, "updatedReplicas": 2, "conditions": [
        {"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated", "lastUpdateTime": "2026-01-01T00:00:09Z"},
    ]});
    let expected =
        "Available False MinimumReplicasUnavailable\nProgressing False ProgressDeadlineExceeded";
    let late = check(
        &waiting,
        json!({}),
        works(0),
        SyncResult::Rolled(None),
        expected,
    );
    let again = check(
        &late,
        json!({}),
        works(0),
        SyncResult::Rolled(None),
        expected,
    );
    assert_eq!(late, again);
}

/// Each refusal names another pod: as many writes as tries.
#[test]
fn a_failure_is_reported_once() {
    let failing = |pod: &str| {
        json!({"replicas": 0, "conditions": [
            {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": format!("{pod} is refused")},
        ]})
    };
    let expected = "Progressing True FoundNewReplicaSet\nAvailable False MinimumReplicasUnavailable\nReplicaFailure True FailedCreate";
    let told = check(
        &json!({}),
        json!({}),
        failing("p1"),
        SyncResult::Rolled(None),
        expected,
    );
    let again = check(
        &told,
        json!({}),
        failing("p2"),
        SyncResult::Rolled(None),
        expected,
    );
    assert_eq!(told["conditions"], again["conditions"]);
}
