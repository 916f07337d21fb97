use super::*;
use serde_json::Value;

/// Whether a pod uses the claim `p-data` that pod `p` with UID `pod` owns.
fn check(uid: &str, node: &str, grace: Option<i64>, volume: Value, expected: bool) {
    let deleted = grace.map(|_| "2026-01-01T00:00:00Z");
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {
            "name": "p", "uid": uid, "deletionTimestamp": deleted, "deletionGracePeriodSeconds": grace,
        },
        "spec": {"nodeName": node, "containers": [], "volumes": [volume]},
        "status": {"phase": "Succeeded"},
    }))
    .unwrap();
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": {"name": "p-data", "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod", "controller": true},
        ]},
    }))
    .unwrap();
    assert_eq!(uses(&pod, &claim), expected, "{pod:?}");
}

#[test]
fn pods_on_a_node_use_the_claims_they_name() {
    let volume = |claim: &str| json!({"name": "v", "persistentVolumeClaim": {"claimName": claim}});
    check("other", "n", None, volume("p-data"), true);
    check("other", "n", None, volume("data"), false);
    check("other", "", None, volume("p-data"), false);
    check("other", "n", Some(0), volume("p-data"), true);
}

#[test]
fn an_ephemeral_volume_is_used_until_its_pod_is_shut_down() {
    let volume = |name: &str| json!({"name": name, "ephemeral": {}});
    check("pod", "n", None, volume("data"), true);
    check("pod", "n", None, volume("other"), false);
    check("another", "n", None, volume("data"), false);
    check("pod", "n", Some(30), volume("data"), true);
    check("pod", "n", Some(0), volume("data"), false);
}
