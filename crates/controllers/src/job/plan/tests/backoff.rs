use super::*;

#[test]
fn ignored_failures_delay_the_next_pod_all_the_same() {
    let spec = json!({"podFailurePolicy": {"rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]}});
    let pod = json!({
        "metadata": {
            "name": "a", "namespace": "ns", "uid": "a", "finalizers": [TRACKING],
            "creationTimestamp": rfc3339(at(0)),
        },
        "status": {"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True"}]},
    });
    let pods = [Arc::new(serde_json::from_value(pod).unwrap())];
    let first = look_at(&job(spec.clone(), json!({})), &pods, at(4));
    assert_eq!(first.again, Some(Duration::from_secs(6)));
    assert_eq!(first.release, ["a"]);
    // The pod was deleted; its failure is remembered.
    let later = |second: i64| {
        decide(
            &job(spec.clone(), json!({})),
            &[],
            Some(&first.backoff),
            at(second),
        )
    };
    assert!(later(9).create.is_empty());
    assert_eq!(later(10).create.len(), 1);
}

#[test]
fn a_failure_that_is_seen_again_delays_as_one() {
    let spec = json!({"podFailurePolicy": {"rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]}});
    let mut pod = (*plain("a", "Failed")).clone();
    let conditions = json!([{"type": "DisruptionTarget", "status": "True"}]);
    pod.status.as_mut().unwrap().conditions = serde_json::from_value(conditions).unwrap();
    let pods = [Arc::new(pod)];
    let job = || job(spec.clone(), json!({}));
    let running = [plain("a", "Running")];
    let mut past = look_at(&job(), &running, at(0)).backoff;
    // Its finalizer could not be removed yet.
    for second in 4..8 {
        past = decide(&job(), &pods, Some(&past), at(second)).backoff;
    }
    let wait = |second: i64| decide(&job(), &[], Some(&past), at(second)).again;
    assert_eq!(wait(8), Some(Duration::from_secs(2)));
    // So it is for one that was there already when the controller started.
    let first = look_at(&job(), &pods, at(4)).backoff;
    let again = decide(&job(), &pods, Some(&first), at(5)).backoff;
    assert_eq!(again, first);
}

#[test]
fn a_success_ends_the_delay() {
    let failed = pod("a", "Failed", true, json!({}));
    let later = json!({"creationTimestamp": rfc3339(at(2))});
    let pods = [failed, pod("b", "Succeeded", true, later)];
    let spec = json!({"completions": 5, "parallelism": 1});
    assert_eq!(look_at(&job(spec, json!({})), &pods, at(3)).create.len(), 1);
}
