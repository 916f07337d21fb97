use super::super::{INDEX, TRACKING};
use super::*;
use crate::workload::condition_status;
use allot_reflector::{Readable as _, everything};

mod backoff;

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

/// What a controller decides that has just been started.
fn look_at(job: &Object, pods: &[Arc<Pod>], now: Timestamp) -> Decision {
    decide(job, pods, None, now)
}

fn indexes(decision: &Decision) -> Vec<i32> {
    decision.create.iter().filter_map(|pod| pod.index).collect()
}

fn has_condition(decision: &Decision, kind: &str) -> bool {
    let status = decision.status.as_ref().unwrap();
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    condition_status(&conditions, kind) == "True"
}

#[test]
fn pods_are_made_up_to_parallelism_and_completions() {
    let check = |spec: Value, pods: &[Arc<Pod>], wanted: usize| {
        let decision = look_at(&job(spec.clone(), json!({})), pods, at(0));
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
    let first = look_at(
        &job(spec.clone(), json!({})),
        std::slice::from_ref(&done),
        at(0),
    );
    let status = first.status.unwrap();
    assert_eq!(status["uncountedTerminatedPods"]["succeeded"], json!(["a"]));
    assert_eq!(status["succeeded"], 0);
    assert_eq!(first.release, ["a"]);
    // Still tracked: nothing is counted twice.
    let again = look_at(&job(spec.clone(), status.clone()), &[done], at(0));
    assert_eq!(again.status.unwrap()["succeeded"], 0);
    // The finalizer was removed: now it counts, even if the pod was deleted too.
    for pods in [vec![pod("a", "Succeeded", false, json!({}))], vec![]] {
        let counted = look_at(&job(spec.clone(), status.clone()), &pods, at(0));
        let status = counted.status.unwrap();
        assert_eq!(status["succeeded"], 1);
        assert!(status["uncountedTerminatedPods"]["succeeded"].is_null());
    }
}

#[test]
fn the_end_is_told_when_everything_is_counted() {
    let spec = json!({"parallelism": 1, "completions": 1});
    let first = look_at(
        &job(spec.clone(), json!({})),
        &[plain("a", "Succeeded")],
        at(0),
    );
    assert!(has_condition(&first, "SuccessCriteriaMet") && !has_condition(&first, "Complete"));
    let status = first.status.unwrap();
    let last = look_at(
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
    let first = look_at(
        &job(spec.clone(), json!({})),
        std::slice::from_ref(&failed),
        at(3),
    );
    assert!(
        first.create.is_empty(),
        "the next pod waits ten seconds from the failure"
    );
    assert_eq!(first.again, Some(Duration::from_secs(7)));
    let second = look_at(
        &job(spec.clone(), json!({})),
        std::slice::from_ref(&failed),
        at(10),
    );
    assert_eq!(second.create.len(), 1);
    let both = [failed, plain("b", "Failed")];
    let end = look_at(&job(spec, json!({})), &both, at(30));
    assert!(has_condition(&end, "FailureTarget"));
    assert!(end.create.is_empty());
}

#[test]
fn a_deadline_ends_the_job_and_its_pods() {
    let spec = json!({"activeDeadlineSeconds": 10});
    let status = json!({"startTime": rfc3339(at(0))});
    let early = look_at(
        &job(spec.clone(), status.clone()),
        &[plain("a", "Running")],
        at(4),
    );
    assert_eq!(early.again, Some(Duration::from_secs(6)));
    let late = look_at(&job(spec, status), &[plain("a", "Running")], at(10));
    assert!(has_condition(&late, "FailureTarget"));
    assert_eq!(late.delete, ["a"]);
}

/// The attack: a deadline after the end of time, for which every pass of the controller panicked.
#[test]
fn regression_a_deadline_that_no_time_has_is_never_reached() {
    let spec = json!({"activeDeadlineSeconds": i64::MAX});
    let status = json!({"startTime": rfc3339(at(0))});
    let pods = [plain("a", "Running")];
    let decision = look_at(&job(spec, status), &pods, at(10));
    assert!(!has_condition(&decision, "FailureTarget"));
    assert!(decision.again > Some(Duration::from_secs(7000 * 365 * 86_400)));
}

#[test]
fn indexed_jobs_run_each_index_once() {
    let spec = json!({"completionMode": "Indexed", "completions": 4, "parallelism": 3});
    let pods = [
        indexed("a", 0, "Succeeded"),
        indexed("b", 1, "Running"),
        indexed("c", 0, "Succeeded"),
    ];
    let decision = look_at(&job(spec, json!({"completedIndexes": "3"})), &pods, at(0));
    assert_eq!(indexes(&decision), [2]);
    let status = decision.status.unwrap();
    assert_eq!(status["completedIndexes"], "0,3");
    assert_eq!(status["succeeded"], 2, "an index counts once");
    assert_eq!(decision.release, ["a", "c"], "the indexes are the record");
}

#[test]
fn surplus_and_suspended_pods_do_not_count_as_failed() {
    let pods = [plain("a", "Running"), plain("b", "Running")];
    let fewer = look_at(
        &job(json!({"parallelism": 1, "completions": 9}), json!({})),
        &pods,
        at(0),
    );
    assert_eq!(fewer.delete.len(), 1);
    assert_eq!(fewer.release, fewer.delete);
    let suspended = look_at(&job(json!({"suspend": true}), json!({})), &pods, at(0));
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
    let fatal = look_at(
        &job(spec.clone(), json!({})),
        &[with_status(ended(42))],
        at(0),
    );
    assert!(has_condition(&fatal, "FailureTarget"));
    let status = fatal.status.unwrap();
    let message =
        "Container m for pod ns/a failed with exit code 42 matching FailJob rule at index 1";
    assert_eq!(status["conditions"][0]["message"], message);
    let mut disrupted = ended(1);
    disrupted["conditions"] = json!([{"type": "DisruptionTarget", "status": "True"}]);
    let ignored = look_at(&job(spec, json!({})), &[with_status(disrupted)], at(100));
    assert!(ignored.status.unwrap()["uncountedTerminatedPods"]["failed"].is_null());
}

/// A failed pod of an index, with the failures before it.
fn failed_index(name: &str, index: i32, before: i32) -> Arc<Pod> {
    let annotations = json!({
        INDEX: index.to_string(), "batch.kubernetes.io/job-index-failure-count": before.to_string(),
    });
    pod(name, "Failed", true, json!({"annotations": annotations}))
}

#[test]
fn failures_count_per_index_and_stay_until_they_are_handed_on() {
    let spec = json!({
        "completionMode": "Indexed", "completions": 3, "parallelism": 3, "backoffLimitPerIndex": 1,
    });
    let pods = [
        failed_index("a", 0, 0),
        failed_index("b", 1, 1),
        indexed("c", 2, "Running"),
    ];
    let early = look_at(&job(spec.clone(), json!({})), &pods, at(9));
    assert_eq!(indexes(&early), [0; 0], "ten seconds from the failure");
    assert_eq!(early.again, Some(Duration::from_secs(1)));
    assert_eq!(early.release, ["b"], "index 1 gets no further pod");
    let status = early.status.unwrap();
    assert_eq!(status["failedIndexes"], "1");
    assert_eq!(
        status["uncountedTerminatedPods"]["failed"],
        json!(["b"]),
        "a is counted when it is replaced"
    );
    let late = look_at(&job(spec.clone(), json!({})), &pods, at(10));
    let [wanted] = late.create[..] else {
        panic!("{:?}", late.create)
    };
    let mut annotations = json!({});
    wanted.failures.unwrap().write(&mut annotations);
    assert_eq!(wanted.index, Some(0));
    assert_eq!(
        annotations["batch.kubernetes.io/job-index-failure-count"],
        "1"
    );
    // With its successor there, the first failure is counted.
    let pods = [failed_index("a", 0, 0), indexed("d", 0, "Running")];
    let replaced = look_at(&job(spec, status), &pods, at(11));
    assert_eq!(replaced.release, ["a"]);
}

#[test]
fn pods_that_end_with_the_job_do_not_fail_their_index() {
    let spec = json!({
        "completionMode": "Indexed", "completions": 4, "parallelism": 4, "backoffLimitPerIndex": 0,
        "maxFailedIndexes": 1,
    });
    let pods = [
        failed_index("a", 0, 0),
        failed_index("b", 1, 0),
        indexed("c", 2, "Running"),
        indexed("d", 3, "Running"),
    ];
    let end = look_at(&job(spec, json!({})), &pods, at(1));
    assert!(has_condition(&end, "FailureTarget"));
    assert_eq!(end.delete, ["c", "d"]);
    let status = end.status.unwrap();
    assert_eq!(status["failedIndexes"], "0,1");
    assert_eq!(status["terminating"], 2);
    let failed = json!(["a", "b", "c", "d"]);
    assert_eq!(status["uncountedTerminatedPods"]["failed"], failed);
}

#[test]
fn the_success_policy_names_its_rule_and_stops_the_rest() {
    let spec = json!({
        "completionMode": "Indexed", "completions": 4, "parallelism": 4,
        "successPolicy": {"rules": [{"succeededIndexes": "2-3"}, {"succeededIndexes": "0-1", "succeededCount": 1}]},
    });
    let pods = [indexed("a", 1, "Succeeded"), indexed("b", 0, "Running")];
    let end = look_at(&job(spec.clone(), json!({})), &pods, at(0));
    let status = end.status.unwrap();
    assert_eq!(status["conditions"][0]["type"], "SuccessCriteriaMet");
    assert_eq!(
        status["conditions"][0]["message"],
        "Matched rules at index 1"
    );
    assert!(status["uncountedTerminatedPods"]["failed"].is_null());
    assert_eq!(end.delete, ["b"]);
    let last = look_at(&job(spec, status), &[], at(1));
    assert!(has_condition(&last, "Complete"));
    assert_eq!(last.status.unwrap()["failed"], 0);
}

#[test]
fn restarts_in_place_count_towards_the_limit() {
    let check = |policy: &str, restarts: i32, fails: bool| {
        let spec = json!({
            "backoffLimit": 2, "template": {"spec": {"containers": [], "restartPolicy": policy}},
        });
        let pod = json!({
            "metadata": {"name": "a", "namespace": "ns", "uid": "a", "finalizers": [TRACKING]},
            "status": {"phase": "Running", "containerStatuses": [{
                "name": "m", "image": "", "imageID": "", "ready": true, "restartCount": restarts,
            }]},
        });
        let pods = [Arc::new(serde_json::from_value(pod).unwrap())];
        let decision = look_at(&job(spec, json!({})), &pods, at(0));
        assert_eq!(
            has_condition(&decision, "FailureTarget"),
            fails,
            "{policy} {restarts}"
        );
    };
    check("OnFailure", 1, false);
    check("OnFailure", 2, true);
    check("Never", 2, false);
}

#[test]
fn of_two_pods_with_one_index_the_worthier_stays() {
    let spec = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3});
    let pods = [
        indexed("a", 0, "Pending"),
        indexed("b", 0, "Running"),
        indexed("c", 7, "Running"),
        plain("d", "Running"),
    ];
    let mut decision = look_at(&job(spec, json!({})), &pods, at(0));
    decision.delete.sort();
    assert_eq!(decision.delete, ["a", "c", "d"]);
    assert!(decision.create.is_empty(), "first the surplus goes");
}

#[test]
fn a_finished_job_lets_its_pods_go() {
    let status = json!({"conditions": [{"type": "Complete", "status": "True"}]});
    let decision = look_at(&job(json!({}), status), &[plain("a", "Running")], at(0));
    assert_eq!(decision.release, ["a"]);
    assert!(decision.status.is_none() && decision.delete.is_empty());
}

#[test]
fn surplus_pods_go_whatever_they_say_about_their_cost() {
    let since = |name: &str, second: i64, cost: &str| {
        let annotations = json!({"controller.kubernetes.io/pod-deletion-cost": cost});
        let mut pod = (*pod(name, "Running", true, json!({"annotations": annotations}))).clone();
        let ready = json!([
            {"type": "Ready", "status": "True", "lastTransitionTime": rfc3339(at(second))},
        ]);
        pod.status.as_mut().unwrap().conditions = serde_json::from_value(ready).unwrap();
        Arc::new(pod)
    };
    let pods = [since("old", 1, "-5"), since("young", 3, "5")];
    let spec = json!({"parallelism": 1, "completions": 4});
    assert_eq!(
        look_at(&job(spec, json!({})), &pods, at(5)).delete,
        ["young"]
    );
}
