//! Room that is made for pods, and kept for them.

use super::*;

/// Containers that ask for so many of the four processors of a node.
fn cpus(count: u32) -> Value {
    json!([{"name": "c", "resources": {"requests": {"cpu": count.to_string()}}}])
}

impl Fixture {
    /// A pod of some priority that asks for processors only, on a node or not.
    pub(super) fn plain(&mut self, name: &str, count: u32, priority: i32, node: Option<&str>) {
        let mut more = json!({"containers": cpus(count), "priority": priority});
        if let Some(node) = node {
            more["nodeName"] = node.into();
        }
        self.any_pod(name, &[], more);
    }

    pub(super) fn known(&self, name: &str) -> Arc<PodInfo> {
        self.core.pods[&Key::new("ns", name)].clone()
    }

    /// The pod as the watch shows it after a change.
    pub(super) fn show(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        let known = self.known(name);
        let mut pod = serde_json::to_value(&*known.pod).expect("JSON");
        if known.node_name().is_some() {
            // The scheduler's copy of a bound pod no longer contains its resource requests.
            pod["spec"]["containers"] = cpus((known.requests.milli_cpu / 1000) as u32);
        }
        change(&mut pod);
        let pod: Box<Pod> = self.object(pod);
        let info = Arc::new(PodInfo::observed(*pod));
        self.handle(Input::Pod(Observed::Applied(Box::new(info))));
    }

    /// The pod is being deleted.
    pub(super) fn leaves(&mut self, name: &str) {
        self.show(name, |pod| {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        });
    }

    /// The pod is being deleted because of preemption.
    pub(super) fn leaves_for_others(&mut self, name: &str) {
        self.show(name, |pod| {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            pod["status"]["conditions"] = json!([{
                "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
            }]);
        });
    }

    pub(super) fn gone(&mut self, name: &str) {
        let pod = self.known(name);
        self.handle(Input::Pod(Observed::Deleted(Box::new(pod))));
    }
}

/// The status of a claim for pod `p` whose device `d1` of `n0` was allocated just now, and is not ready yet.
fn not_ready() -> Value {
    let mut status = allocated("n0", &["p"]);
    let result = &mut status["allocation"]["devices"]["results"][0];
    result["device"] = json!("d1");
    result["bindingConditions"] = json!(["ready"]);
    result["bindingFailureConditions"] = json!(["broken"]);
    status["allocation"]["allocationTimestamp"] = json!("1970-01-01T00:00:00Z");
    status
}

impl Outcome {
    /// The victims and their preemptors.
    pub(super) fn preempted(&self) -> Vec<(String, String)> {
        let preempted = self.0.iter().filter_map(|a| match a {
            Action::Preempt {
                preemptor, victims, ..
            } => {
                let names = victims.iter().map(|v| v.key.name.to_string());
                Some((
                    preemptor.key().name.to_string(),
                    names.collect::<Vec<_>>().join(" "),
                ))
            }
            _ => None,
        });
        preempted.collect()
    }
}

/// Both nodes full of pods that may be driven away, and a pod that drives one away.
fn preempting() -> (Fixture, String) {
    let mut fixture = Fixture::new("");
    for node in ["n0", "n1"] {
        fixture.plain(&format!("on-{node}"), 3, 0, Some(node));
        fixture.plain(&format!("small-{node}"), 1, 20, Some(node));
    }
    fixture.plain("p", 3, 10, None);
    let (preemptor, victim) = fixture.run().preempted().pop().expect("a victim");
    assert_eq!(preemptor, "p");
    (fixture, victim)
}

#[test]
fn no_other_pod_is_preempted_while_victims_are_not_observed_terminating() {
    let (mut fixture, victim) = preempting();
    // Something else makes the pod worth another try, before anything is seen of what was decided.
    fixture.plain("other", 1, 0, Some("n0"));
    fixture.gone("other");
    assert!(fixture.run().0.is_empty());
    assert_eq!(fixture.core.queue_counts().gated, 1);
    fixture.gone(&victim);
    assert!(fixture.run().node().is_some());
}

#[test]
fn a_pod_is_tried_again_when_its_victim_can_not_be_deleted() {
    let (mut fixture, victim) = preempting();
    let uid = fixture.known(&victim).uid.clone();
    fixture.handle(Input::NotPreempted(uid));
    assert_eq!(fixture.run().preempted().len(), 1);
}

/// The nomination counts before the API server has it, and also when another component deletes another pod there.
#[test]
fn only_pods_that_leave_because_of_preemption_make_room() {
    let (mut fixture, victim) = preempting();
    fixture.leaves(&victim);
    // It goes for another reason, and may take its time: another one has to go.
    assert_eq!(fixture.run().preempted().len(), 1);
    let (mut fixture, victim) = preempting();
    fixture.leaves_for_others(&victim);
    let outcome = fixture.run();
    assert!(outcome.preempted().is_empty());
    let text = "not eligible due to a terminating pod on the nominated node";
    assert!(outcome.message().contains(text), "{}", outcome.message());
}

#[test]
fn what_was_kept_for_a_pod_is_free_when_it_goes() {
    let mut fixture = Fixture::new("");
    fixture.node("n1", json!({"unschedulable": true}));
    fixture.plain("on", 4, 0, Some("n0"));
    fixture.plain("p", 4, 10, None);
    assert_eq!(fixture.run().preempted().len(), 1);
    fixture.show("p", |pod| pod["status"]["nominatedNodeName"] = json!("n0"));
    fixture.plain("q", 4, 0, None);
    assert!(fixture.run().node().is_none());
    // A gate keeps the first one from taking its place, and the second one waits.
    fixture.show("p", |pod| {
        pod["spec"]["schedulingGates"] = json!([{"name": "g"}])
    });
    fixture.gone("on");
    assert!(fixture.run().node().is_none());
    fixture.gone("p");
    assert_eq!(fixture.run().node(), Some("n0"));
}

#[test]
fn what_was_kept_for_a_pod_is_free_while_it_lacks_a_claim() {
    for is_gone in [true, false] {
        let mut fixture = Fixture::new("");
        fixture.node("n1", json!({"unschedulable": true}));
        fixture.slice("n0", json!([{"name": "d"}]));
        fixture.plain("on", 2, 0, Some("n0"));
        fixture.claim("a", json!({}));
        let more = json!({"containers": cpus(4), "priority": 10});
        fixture.any_pod("p", &["a"], more);
        assert_eq!(fixture.run().preempted().len(), 1);
        fixture.plain("q", 2, 0, None);
        assert!(fixture.run().node().is_none());
        let claim = fixture.core.claims.get(&Key::new("ns", "a"));
        let mut claim = serde_json::to_value(&**claim.expect("a claim")).expect("JSON");
        claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let claim = fixture.object(claim);
        fixture.handle(Input::Claim(match is_gone {
            true => Observed::Deleted(claim),
            false => Observed::Applied(claim),
        }));
        assert_eq!(fixture.run().node(), Some("n0"), "gone: {is_gone}");
    }
}

#[test]
fn a_pod_that_is_displaced_looks_for_another_place() {
    let mut fixture = Fixture::new("");
    fixture.node("n1", json!({"unschedulable": true}));
    fixture.plain("on", 4, 0, Some("n0"));
    fixture.plain("p", 4, 10, None);
    fixture.run();
    fixture.leaves("on");
    fixture.plain("q", 4, 20, None);
    let outcome = fixture.run();
    let cleared = |a: &Action| matches!(a, Action::ClearNomination(pod) if *pod.key.name == *"p");
    assert!(outcome.0.iter().any(cleared), "{}", outcome.message());
    fixture.node("n1", json!({}));
    assert_eq!(fixture.run().node(), Some("n1"));
}

#[test]
fn a_pod_that_waits_for_its_devices_is_not_deleted_for_another() {
    let mut fixture = Fixture::new("");
    fixture.node("n1", json!({"unschedulable": true}));
    fixture.claim("a", not_ready());
    fixture.pod("p", &["a"]);
    let job = fixture.run().bound().expect("a place").clone();
    fixture.handle(Input::ClaimsReady(job.pod.uid.clone()));
    fixture.plain("q", 4, 10, None);
    let outcome = fixture.run();
    assert!(outcome.preempted().is_empty());
    let told = |a: &Action| matches!(a, Action::RecordPreempted { victim, .. } if *victim.key.name == *"p");
    assert!(outcome.0.iter().any(told));
    // There is room at once, after the backoff.
    let time = fixture.time();
    assert!(fixture.core.schedule_one(time));
    assert_eq!(fixture.run().node(), Some("n0"));
}

#[test]
fn a_pod_that_never_preempts_says_so_in_any_case() {
    let mut fixture = Fixture::new("");
    fixture.claim("a", json!({}));
    fixture.handle(Input::Class(Observed::Listed {
        items: Vec::new(),
        version: String::new(),
    }));
    fixture.any_pod("p", &["a"], json!({"preemptionPolicy": "Never"}));
    let message = fixture.run().message().to_owned();
    let text = "preemption: not eligible due to preemptionPolicy=Never.";
    assert!(message.ends_with(text), "{message}");
}

#[test]
fn every_reason_of_a_node_is_counted() {
    let mut fixture = Fixture::new("");
    fixture.node("n1", json!({"unschedulable": true}));
    let half = |amount: &str, memory: &str| {
        let requests = json!({"cpu": amount, "memory": memory});
        json!([{"name": "c", "resources": {"requests": requests}}])
    };
    fixture.plain("low", 1, 0, Some("n0"));
    let more = json!({"containers": half("2", "2Gi"), "priority": 20, "nodeName": "n0"});
    fixture.any_pod("high", &[], more);
    fixture.any_pod(
        "p",
        &[],
        json!({"containers": half("4", "4Gi"), "priority": 10}),
    );
    let message = fixture.run().message().to_owned();
    let text = "preemption: 0/2 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 Preemption is not helpful for scheduling.";
    assert!(message.ends_with(text), "{message}");
}

#[test]
fn a_pod_for_which_there_was_no_node_is_told_of_the_first() {
    let mut config = Config::default();
    config.features.set("").expect("gates");
    let mut fixture = Fixture {
        core: Core::new(config, Metrics::new()),
        now: 0,
        version: 100,
    };
    fixture.any_pod("p", &[], json!({"nodeSelector": {"a": "b"}}));
    assert_eq!(fixture.run().message(), crate::message::NO_NODES);
    fixture.node("n0", json!({}));
    let text = "1 node(s) didn't match Pod's node affinity/selector";
    assert!(fixture.run().message().contains(text));
}

/// A claim that is shared may have been allocated long ago, which is no reason to give up the others.
#[test]
fn only_claims_that_are_not_ready_can_be_late() {
    let mut fixture = Fixture::new("");
    let mut old = allocated("n0", &["other", "p"]);
    old["allocation"]["allocationTimestamp"] = json!("1969-12-31T20:00:00Z");
    fixture.claim("old", old);
    fixture.claim("new", not_ready());
    fixture.pod("p", &["old", "new"]);
    let job = fixture.run().bound().expect("a place").clone();
    fixture.handle(Input::ClaimsReady(job.pod.uid.clone()));
    let outcome = fixture.run();
    let waits = |a: &Action| matches!(a, Action::RecordWaitForConditions { .. });
    assert!(outcome.0.iter().any(waits), "{}", outcome.message());
}

#[test]
fn nothing_is_kept_for_a_pod_that_is_being_deleted_on_its_way() {
    let mut fixture = Fixture::new("");
    fixture.node("n1", json!({"unschedulable": true}));
    fixture.plain("p", 4, 0, None);
    assert_eq!(fixture.run().node(), Some("n0"));
    fixture.plain("q", 4, 0, None);
    assert!(fixture.run().node().is_none());
    fixture.show("p", |pod| {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        pod["metadata"]["finalizers"] = json!(["example.com/keep"]);
    });
    assert_eq!(fixture.run().node(), Some("n0"));
}

#[test]
fn a_victim_that_is_not_seen_on_its_node_yet_is_seen_leaving() {
    let mut fixture = Fixture::new("");
    fixture.node("n1", json!({"unschedulable": true}));
    fixture.plain("p", 4, 0, None);
    assert_eq!(fixture.run().node(), Some("n0"));
    fixture.plain("q", 4, 10, None);
    assert_eq!(fixture.run().preempted().len(), 1);
    fixture.leaves("p");
    assert_eq!(fixture.run().node(), Some("n0"));
}

/// Both nodes are full of a pod that is leaving.
fn both_leave() -> Fixture {
    let mut fixture = Fixture::new("");
    for node in ["n0", "n1"] {
        fixture.plain(&format!("on-{node}"), 4, 0, Some(node));
        fixture.leaves(&format!("on-{node}"));
    }
    fixture
}

/// Found by simulation: two pods that choose the same one, which is leaving anyway, must not requeue each other endlessly.
#[test]
fn a_pod_that_is_leaving_already_is_waited_for() {
    let mut fixture = both_leave();
    for pod in ["p", "q"] {
        fixture.plain(pod, 4, 10, None);
    }
    let time = fixture.time();
    let tries = (0..50)
        .take_while(|_| fixture.core.schedule_one(time))
        .count();
    assert!(tries < 10, "{tries} attempts while nothing happens");
    let counted = fixture.core.metrics.encode();
    assert!(
        counted.contains("scheduler_preemption_attempts_total 0"),
        "{counted}"
    );
    for node in ["n0", "n1"] {
        fixture.gone(&format!("on-{node}"));
    }
    let placed = fixture.run().0.into_iter();
    assert_eq!(placed.filter(|a| matches!(a, Action::Bind(_))).count(), 2);
}

/// As upstream: pods leave no devices behind, as far as preemption is concerned, neither where nothing else is in the way nor
/// where they would have to go for something else.
#[test]
fn priority_takes_no_devices_from_others() {
    for processors in [1, 4] {
        let mut fixture = Fixture::new("");
        fixture.node("n1", json!({"unschedulable": true}));
        fixture.slice("n0", json!([{"name": "d0"}]));
        fixture.claim("a", allocated("n0", &["low"]));
        let low = json!({"containers": cpus(2), "priority": 1, "nodeName": "n0"});
        fixture.any_pod("low", &["a"], low);
        fixture.claim("b", json!({}));
        let high = json!({"containers": cpus(processors), "priority": 10});
        fixture.any_pod("high", &["b"], high);
        let outcome = fixture.run();
        assert!(outcome.node().is_none());
        let goes = |a: &Action| matches!(a, Action::Preempt { .. });
        assert!(!outcome.0.iter().any(goes), "{}", outcome.message());
        if processors == 1 {
            let why = "2 Preemption is not helpful for scheduling.";
            assert!(outcome.message().ends_with(why), "{}", outcome.message());
        }
    }
}

/// A pod that waits for terminating victims takes capacity that gets free elsewhere first.
#[test]
fn a_pod_that_waits_for_others_takes_another_place() {
    let mut fixture = both_leave();
    fixture.plain("p", 4, 10, None);
    fixture.run();
    let p = fixture.known("p");
    let other = match fixture.core.nominated_node(&p).expect("a node") {
        "n0" => "n1",
        _ => "n0",
    };
    fixture.gone(&format!("on-{other}"));
    let time = fixture.time();
    fixture.core.schedule_one(time);
    assert_eq!(fixture.run().node(), Some(other));
}
