use serde_json::{Value, json};

use super::*;

const ALLOCATABLE: Sizes = Sizes {
    cpu: 4000,
    memory: 4 << 30,
};

fn pod(name: &str, cpu: &str, more: Value) -> Arc<Pod> {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "n", "uid": name, "generation": 1},
        "spec": {"nodeName": "here", "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    Arc::new(serde_json::from_value(pod).expect("a pod"))
}

/// The same pod with other resources.
fn changed(name: &str, cpu: &str, generation: i64, more: Value) -> Arc<Pod> {
    let mut pod = Pod::clone(&pod(name, cpu, more));
    pod.metadata.generation = Some(generation);
    Arc::new(pod)
}

fn admit(allocations: &Allocations, pod: &Arc<Pod>) -> Arc<Notify> {
    let news = Arc::default();
    let reserved = requests(pod, &Default::default());
    let resizes = ResizeConditions::default();
    allocations.admit(pod, Allocation::of(pod), reserved, resizes, &news);
    news
}

fn reasons(events: &[ResizeEvent]) -> Vec<(String, &'static str)> {
    let reasons = events.iter().map(|it| (it.pod.name_any(), it.reason));
    reasons.collect()
}

fn cpu(pod: &Pod) -> i64 {
    requests(pod, &Default::default()).cpu
}

#[tokio::test]
async fn a_resize_that_does_not_fit_waits_until_another_pod_releases_resources() {
    let allocations = Allocations::new(ALLOCATABLE, AllocatableByNode::new());
    let (first, second) = (pod("a", "3", json!({})), pod("b", "1", json!({})));
    admit(&allocations, &first);
    let news = admit(&allocations, &second);
    let more = changed("b", "2", 2, json!({}));
    let (run, events) = allocations.update(&more);
    assert_eq!(cpu(&run), 1000);
    assert_eq!(reasons(&events), [("b".to_owned(), "ResizeDeferred")]);
    let pending = allocations.resizes("b").pending.expect("a condition");
    assert_eq!(
        (pending.reason.as_str(), pending.generation),
        ("Deferred", 2)
    );
    let message =
        "Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000";
    assert_eq!(pending.message, message);
    let expected = format!(
        "Pod resize OutOfcpu: {{\"containers\":[{{\"name\":\"c\",\"resources\":{{\"requests\":{{\"cpu\":\"2\"}}}}}}],\"generation\":2,\"error\":\"{message}\"}}"
    );
    assert_eq!(events[0].message, expected);
    // The same version has no further event.
    assert!(allocations.update(&more).1.is_empty());

    // What another pod releases counts when its containers have released it.
    let (run, events) = allocations.update(&changed("a", "1", 2, json!({})));
    assert_eq!(cpu(&run), 1000);
    assert_eq!(reasons(&events), [("a".to_owned(), "ResizeStarted")]);
    assert!(allocations.resizes("b").pending.is_some());
    let reserved = Sizes {
        cpu: 1000,
        memory: 0,
    };
    let less = changed("a", "1", 2, json!({}));
    let events = allocations.settle(&less, true, reserved);
    let expected = [
        ("a".to_owned(), "ResizeCompleted"),
        ("b".to_owned(), "ResizeStarted"),
    ];
    assert_eq!(reasons(&events), expected);
    tokio::time::timeout(std::time::Duration::from_secs(60), news.notified())
        .await
        .expect("its worker is notified");
    assert_eq!(cpu(&allocations.allocated(&more)), 2000);
    let resizes = allocations.resizes("b");
    assert!(resizes.pending.is_none() && resizes.progress.is_some());
}

#[test]
fn resizes_are_tried_in_the_kubelets_order() {
    let allocations = Allocations::new(ALLOCATABLE, AllocatableByNode::new());
    let large = pod("large", "3", json!({}));
    admit(&allocations, &large);
    for name in ["low", "high", "less"] {
        admit(&allocations, &pod(name, "300m", json!({})));
    }
    let high = json!({"priority": 1000});
    assert_eq!(
        allocations
            .update(&changed("low", "1", 2, json!({})))
            .1
            .len(),
        1
    );
    assert_eq!(
        allocations.update(&changed("high", "1", 2, high)).1.len(),
        1
    );
    // A resize that requests no more than is allocated is never deferred, even if the node has too little already.
    let (run, events) = allocations.update(&changed("less", "200m", 2, json!({})));
    assert_eq!((cpu(&run), events[0].reason), (200, "ResizeStarted"));
    // The released resources are enough for one of them.
    let reserved = Sizes {
        cpu: 2200,
        memory: 0,
    };
    let events = allocations.settle(&large, true, reserved);
    assert_eq!(reasons(&events), [("high".to_owned(), "ResizeStarted")]);
    let pending = allocations.resizes("low").pending.expect("it waits");
    assert!(
        pending.message.contains("used: 3500"),
        "{}",
        pending.message
    );
    // A pod that has ended takes nothing, and one that is gone neither.
    assert_eq!(
        reasons(&allocations.end("large")),
        [("low".to_owned(), "ResizeStarted")]
    );
    assert!(allocations.remove("large").is_empty());
    assert!(allocations.remove("none").is_empty());
}

#[test]
fn a_resize_that_is_undone_is_not_pending() {
    let allocations = Allocations::new(ALLOCATABLE, AllocatableByNode::new());
    let first = pod("a", "1", json!({}));
    admit(&allocations, &first);
    allocations.update(&changed("a", "5", 2, json!({})));
    assert!(allocations.resizes("a").pending.is_some());
    let (run, events) = allocations.update(&changed("a", "1", 3, json!({})));
    assert!(events.is_empty() && cpu(&run) == 1000);
    assert_eq!(allocations.resizes("a"), ResizeConditions::default());
}

#[test]
fn an_error_has_one_event_and_ends_with_the_next_resize() {
    let allocations = Allocations::new(ALLOCATABLE, AllocatableByNode::new());
    let first = pod("a", "1", json!({}));
    admit(&allocations, &first);
    let (second, _) = allocations.update(&changed("a", "2", 2, json!({})));
    assert_eq!(allocations.fail(&second, "no").len(), 1);
    assert!(allocations.fail(&second, "no").is_empty());
    let reserved = Sizes {
        cpu: 2000,
        memory: 0,
    };
    // It is still on its way, with its error.
    assert!(allocations.settle(&second, false, reserved).is_empty());
    let progress = allocations.resizes("a").progress.expect("a condition");
    assert_eq!(
        (progress.reason.as_str(), progress.generation),
        ("Error", 2)
    );
    allocations.update(&changed("a", "3", 3, json!({})));
    let progress = allocations.resizes("a").progress.expect("a condition");
    assert_eq!((progress.reason.as_str(), progress.generation), ("", 3));
}

#[test]
fn simulated_nodes_have_allocatable_resources_of_their_own() {
    let small = Sizes {
        cpu: 1000,
        memory: 0,
    };
    let allocations = Allocations::new(ALLOCATABLE, [("small".to_owned(), small)].into());
    admit(&allocations, &pod("a", "4", json!({})));
    let there = json!({"nodeName": "small"});
    admit(&allocations, &pod("b", "500m", there.clone()));
    let (run, _) = allocations.update(&changed("b", "1", 2, there.clone()));
    assert_eq!(cpu(&run), 1000);
    let (run, _) = allocations.update(&changed("b", "2", 3, there));
    assert_eq!(cpu(&run), 1000);
}

#[test]
fn conditions_that_an_earlier_agent_reported_are_kept() {
    let condition = |kind: &str, reason: &str| {
        json!({"type": kind, "status": "True", "reason": reason, "message": "m", "observedGeneration": 4,
            "lastTransitionTime": "2026-01-01T00:00:00Z", "lastProbeTime": "2026-01-02T00:00:00Z"})
    };
    let status = json!({"conditions": [condition(PENDING, "Deferred"), condition("Ready", "x")]});
    let status: PodStatus = serde_json::from_value(status).expect("a status");
    let resizes = ResizeConditions::reported(&status);
    let pending = resizes.pending.clone().expect("a condition");
    assert_eq!((pending.generation, pending.message.as_str()), (4, "m"));
    assert!(pending.since < pending.probed && resizes.progress.is_none());
    // The next agent evaluates the resize again, and records no event that was recorded before.
    let allocations = Allocations::new(ALLOCATABLE, AllocatableByNode::new());
    let wanted = changed("a", "5", 4, json!({}));
    let before = Allocation::of(&pod("a", "1", json!({})));
    allocations.admit(&wanted, before, Sizes::default(), resizes, &Arc::default());
    let (run, events) = allocations.update(&wanted);
    assert!(events.is_empty() && cpu(&run) == 1000);
    let found = allocations.resizes("a").pending.expect("a condition");
    assert_eq!(found.since, pending.since);
    assert!(found.message.contains("requested: 5000"));
}

/// A worker reported what its containers had before it was notified of the grant: the granted resources were granted twice.
#[test]
fn regression_a_grant_that_the_worker_does_not_know_yet_stays() {
    let allocations = Allocations::new(ALLOCATABLE, AllocatableByNode::new());
    for (name, cpu) in [("large", "3"), ("a", "500m"), ("b", "500m")] {
        admit(&allocations, &pod(name, cpu, json!({})));
    }
    let (before, _) = allocations.update(&changed("a", "2", 2, json!({})));
    assert_eq!(cpu(&before), 500);
    let events = allocations.end("large");
    assert_eq!(reasons(&events), [("a".to_owned(), "ResizeStarted")]);
    let reserved = Sizes {
        cpu: 500,
        memory: 0,
    };
    assert!(allocations.settle(&before, true, reserved).is_empty());
    assert!(allocations.fail(&before, "no").is_empty());
    let progress = allocations.resizes("a").progress.expect("a condition");
    assert_eq!((progress.reason.as_str(), progress.generation), ("", 2));
    let (run, events) = allocations.update(&changed("b", "3", 2, json!({})));
    assert_eq!((cpu(&run), events[0].reason), (500, "ResizeDeferred"));
}

/// What other pods have was not known yet when one ended.
#[test]
fn regression_nothing_is_granted_before_all_pods_are_known() {
    let allocations = Allocations::new(ALLOCATABLE, AllocatableByNode::new());
    let (wanted, reserved) = (changed("a", "3", 2, json!({})), Sizes::default());
    let before = Allocation::of(&pod("a", "1", json!({})));
    let resizes = ResizeConditions::default();
    allocations.admit(&wanted, before, reserved, resizes, &Arc::default());
    admit(&allocations, &pod("short", "1", json!({})));
    assert!(allocations.end("short").is_empty());
    assert!(allocations.remove("short").is_empty());
    admit(&allocations, &pod("large", "3", json!({})));
    let (run, events) = allocations.update(&wanted);
    assert_eq!((cpu(&run), events[0].reason), (1000, "ResizeDeferred"));
}

#[test]
fn a_pod_that_is_being_deleted_gets_no_more() {
    let allocations = Allocations::new(ALLOCATABLE, AllocatableByNode::new());
    for (name, cpu) in [("large", "3"), ("a", "500m"), ("b", "500m")] {
        admit(&allocations, &pod(name, cpu, json!({})));
    }
    let first = changed("a", "3", 2, json!({"priority": 1000}));
    allocations.update(&first);
    allocations.update(&changed("b", "3", 2, json!({})));
    assert_eq!(cpu(&allocations.leave(&first)), 500);
    let events = allocations.end("large");
    assert_eq!(reasons(&events), [("b".to_owned(), "ResizeStarted")]);
    assert_eq!(allocations.resizes("a"), ResizeConditions::default());
}
