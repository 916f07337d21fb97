use super::super::TRACKING;
use super::*;
use allot_reflector::{Readable as _, everything};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn job(spec: Value, status: Value) -> Object {
    let mut full = json!({"template": {"spec": {"containers": []}}});
    for (key, value) in spec.as_object().unwrap() {
        full[key.as_str()] = value.clone();
    }
    let job = json!({
        "metadata": {"name": "j", "namespace": "ns", "uid": "job"},
        "spec": full,
        "status": status,
    });
    Object::read(&job.to_string(), everything).unwrap()
}

fn pod(name: &str, phase: &str, tracked: bool, more: Value) -> Arc<Pod> {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": rfc3339(at(0))},
        "status": {"phase": phase},
    });
    if tracked {
        pod["metadata"]["finalizers"] = json!([TRACKING]);
    }
    for (key, value) in more.as_object().into_iter().flatten() {
        pod["metadata"][key.as_str()] = value.clone();
    }
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn plain(name: &str, phase: &str) -> Arc<Pod> {
    pod(name, phase, true, json!({}))
}

fn indexed(name: &str, index: i32, phase: &str) -> Arc<Pod> {
    pod(
        name,
        phase,
        true,
        json!({"annotations": {INDEX: index.to_string()}}),
    )
}

fn has_condition(decision: &Decision, kind: &str) -> bool {
    let status = decision.status.as_ref().unwrap();
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    condition_status(&conditions, kind) == "True"
}

#[test]
fn pods_are_made_up_to_parallelism_and_completions() {
    let check = |spec: Value, pods: &[Arc<Pod>], wanted: usize| {
        let decision = decide(&job(spec.clone(), json!({})), pods, at(0));
        assert_eq!(decision.create.len(), wanted, "{spec}");
    };
    check(json!({"parallelism": 3, "completions": 5}), &[], 3);
    check(json!({"parallelism": 3, "completions": 2}), &[], 2);
    check(
        json!({"parallelism": 3, "completions": 5}),
        &[plain("a", "Running")],
        2,
    );
    check(json!({"parallelism": 3}), &[], 3);
    check(json!({"suspend": true, "parallelism": 3}), &[], 0);
}

#[test]
fn a_finished_pod_is_recorded_before_it_is_released_and_counted_after() {
    let spec = json!({"parallelism": 1, "completions": 2});
    let done = plain("a", "Succeeded");
    let first = decide(
        &job(spec.clone(), json!({})),
        std::slice::from_ref(&done),
        at(0),
    );
    let status = first.status.unwrap();
    assert_eq!(status["uncountedTerminatedPods"]["succeeded"], json!(["a"]));
    assert_eq!(status["succeeded"], 0);
    assert_eq!(first.release, ["a"]);
    // Still tracked: nothing is counted twice.
    let again = decide(&job(spec.clone(), status.clone()), &[done], at(0));
    assert_eq!(again.status.unwrap()["succeeded"], 0);
    // The finalizer is gone: now it counts, even if the pod is gone too.
    for pods in [vec![pod("a", "Succeeded", false, json!({}))], vec![]] {
        let counted = decide(&job(spec.clone(), status.clone()), &pods, at(0));
        let status = counted.status.unwrap();
        assert_eq!(status["succeeded"], 1);
        assert!(status["uncountedTerminatedPods"]["succeeded"].is_null());
    }
}

#[test]
fn the_end_is_told_when_everything_is_counted() {
    let spec = json!({"parallelism": 1, "completions": 1});
    let first = decide(
        &job(spec.clone(), json!({})),
        &[plain("a", "Succeeded")],
        at(0),
    );
    assert!(has_condition(&first, "SuccessCriteriaMet") && !has_condition(&first, "Complete"));
    let status = first.status.unwrap();
    let last = decide(
        &job(spec, status),
        &[pod("a", "Succeeded", false, json!({}))],
        at(5),
    );
    assert!(has_condition(&last, "Complete"));
    assert_eq!(last.status.unwrap()["completionTime"], rfc3339(at(5)));
}

#[test]
fn failures_wait_and_then_end_the_job() {
    let spec = json!({"parallelism": 1, "completions": 1, "backoffLimit": 1});
    let failed = pod("a", "Failed", true, json!({}));
    let first = decide(
        &job(spec.clone(), json!({})),
        std::slice::from_ref(&failed),
        at(3),
    );
    assert!(
        first.create.is_empty(),
        "the next pod waits ten seconds from the failure"
    );
    assert_eq!(first.again, Some(Duration::from_secs(7)));
    let second = decide(
        &job(spec.clone(), json!({})),
        std::slice::from_ref(&failed),
        at(10),
    );
    assert_eq!(second.create.len(), 1);
    let both = [failed, plain("b", "Failed")];
    let end = decide(&job(spec, json!({})), &both, at(30));
    assert!(has_condition(&end, "FailureTarget"));
    assert!(end.create.is_empty());
}

#[test]
fn a_deadline_ends_the_job_and_its_pods() {
    let spec = json!({"activeDeadlineSeconds": 10});
    let status = json!({"startTime": rfc3339(at(0))});
    let early = decide(
        &job(spec.clone(), status.clone()),
        &[plain("a", "Running")],
        at(4),
    );
    assert_eq!(early.again, Some(Duration::from_secs(6)));
    let late = decide(&job(spec, status), &[plain("a", "Running")], at(10));
    assert!(has_condition(&late, "FailureTarget"));
    assert_eq!(late.delete, ["a"]);
}

#[test]
fn indexed_jobs_run_each_index_once() {
    let spec = json!({"completionMode": "Indexed", "completions": 4, "parallelism": 3});
    let pods = [
        indexed("a", 0, "Succeeded"),
        indexed("b", 1, "Running"),
        indexed("c", 0, "Succeeded"),
    ];
    let decision = decide(&job(spec, json!({"completedIndexes": "3"})), &pods, at(0));
    assert_eq!(decision.create, [Some(2)]);
    let status = decision.status.unwrap();
    assert_eq!(status["completedIndexes"], "0,3");
    assert_eq!(
        status["uncountedTerminatedPods"]["succeeded"],
        json!(["a"]),
        "an index counts once"
    );
}

#[test]
fn surplus_and_suspended_pods_do_not_count_as_failed() {
    let pods = [plain("a", "Running"), plain("b", "Running")];
    let fewer = decide(
        &job(json!({"parallelism": 1, "completions": 9}), json!({})),
        &pods,
        at(0),
    );
    assert_eq!(fewer.delete.len(), 1);
    assert_eq!(fewer.release, fewer.delete);
    let suspended = decide(&job(json!({"suspend": true}), json!({})), &pods, at(0));
    assert_eq!(suspended.delete.len(), 2);
    assert_eq!(suspended.release.len(), 2);
    assert!(has_condition(&suspended, "Suspended"));
}

#[test]
fn failure_policy_rules_are_tried_in_order() {
    let spec = json!({
        "backoffLimit": 6,
        "podFailurePolicy": {"rules": [
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
        ]},
    });
    let ended = |code: i32| {
        json!({"phase": "Failed", "containerStatuses": [{
            "name": "m", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": code}},
        }]})
    };
    let with_status =
        |status: Value| -> Arc<Pod> {
            Arc::new(serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "ns", "uid": "a", "finalizers": [TRACKING]},
            "status": status,
        })).unwrap())
        };
    let fatal = decide(
        &job(spec.clone(), json!({})),
        &[with_status(ended(42))],
        at(0),
    );
    assert!(has_condition(&fatal, "FailureTarget"));
    let status = fatal.status.unwrap();
    let message =
        "Container m failed with exit code 42 for pod ns/a matching FailJob rule at index 1";
    assert_eq!(status["conditions"][0]["message"], message);
    let mut disrupted = ended(1);
    disrupted["conditions"] = json!([{"type": "DisruptionTarget", "status": "True"}]);
    let ignored = decide(&job(spec, json!({})), &[with_status(disrupted)], at(100));
    assert!(ignored.status.unwrap()["uncountedTerminatedPods"]["failed"].is_null());
}
