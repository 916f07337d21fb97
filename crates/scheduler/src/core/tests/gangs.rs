//! Pods that are placed at once, or not at all. Two nodes with two devices each, pods of one processor of four.

use super::*;
use crate::actions::BindJob;

mod explain;
mod preemption;
mod workload_aware_preemption;

const GATES: &str = "GenericWorkload=true,GangScheduling=true";

impl Fixture {
    fn gang(&mut self, name: &str, min_count: usize) {
        self.any_group(
            name,
            json!({"schedulingPolicy": {"gang": {"minCount": min_count}}}),
        );
    }

    fn any_group(&mut self, name: &str, spec: Value) {
        let group: Box<DynamicObject> = self.object(json!({
            "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"), "generation": 1},
            "spec": spec,
        }));
        let group = PodGroup::read(&group).expect("a group");
        self.handle(Input::PodGroup(Observed::Applied(Box::new(group))));
    }

    fn lose_group(&mut self, name: &str) {
        let metadata = json!({"name": name, "namespace": "ns", "uid": format!("uid-{name}")});
        let group: Box<DynamicObject> = self.object(json!({"metadata": metadata, "spec": {}}));
        let group = PodGroup::read(&group).expect("a group");
        self.handle(Input::PodGroup(Observed::Deleted(Box::new(group))));
    }

    /// A pod of group `g` that has a claim for a device to itself.
    fn member(&mut self, name: &str) {
        self.claim(&format!("of-{name}"), json!({}));
        self.member_with(name, &[&format!("of-{name}")], json!({}));
    }

    fn member_with(&mut self, name: &str, claims: &[&str], mut more: Value) {
        more["schedulingGroup"] = json!({"podGroupName": "g"});
        self.any_pod(name, claims, more);
    }

    /// What is decided about the pods that are ready, a line for each.
    fn check_decided(&mut self, expected: &str) {
        let outcome = self.run();
        let lines = outcome.0.iter().filter_map(|action| match action {
            Action::Bind(job) => Some(bound(job)),
            Action::Reject(r) => {
                let to = match &r.nominate {
                    crate::actions::Nominate::Set(node) => format!(" for {node}"),
                    _ => String::new(),
                };
                Some(format!("{} waits{to}: {}", r.pod.key.name, r.message))
            }
            Action::Preempt { victims, .. } => {
                let names: Vec<&str> = victims.iter().map(|v| &*v.key.name).collect();
                Some(format!("{} goes", names.join(" ")))
            }
            Action::UpdatePodGroupStatus {
                group, condition, ..
            } => {
                let (status, reason) = (&condition.status, &condition.reason);
                let told = format!("{} {status} {reason} {}", group.name, condition.message);
                Some(told.trim_end().to_owned())
            }
            _ => None,
        });
        assert_eq!(lines.collect::<Vec<_>>().join("\n"), expected.trim());
    }
}

/// Where a pod goes, with how many devices of its claims.
fn bound(job: &BindJob) -> String {
    let allocations = job.claims.iter().filter_map(|c| c.allocation.as_ref());
    let devices =
        allocations.flat_map(|a| a.devices.iter().flat_map(|d| d.results.iter().flatten()));
    format!(
        "{} to {} with {}",
        job.pod.key.name,
        job.node,
        devices.count()
    )
}

const BIG: &str = r#""big" in device.attributes["d"]"#;

/// A request for a device that has the attribute `big`.
fn big() -> Value {
    let selectors = json!([{"cel": {"expression": BIG}}]);
    json!({"name": "r", "exactly": {"deviceClassName": "c", "selectors": selectors, "allocationMode": "ExactCount", "count": 1}})
}

/// A request for two devices, or else one.
fn two_or_one() -> Value {
    let alternative = |name: &str, count| json!({"name": name, "deviceClassName": "c", "allocationMode": "ExactCount", "count": count});
    json!({"name": "r", "firstAvailable": [alternative("two", 2), alternative("one", 1)]})
}

#[test]
fn a_gang_is_placed_at_once() {
    let mut fixture = Fixture::new(GATES);
    fixture.gang("g", 3);
    ["p0", "p1"].iter().for_each(|p| fixture.member(p));
    fixture.check_decided("");
    assert_eq!(fixture.core.queue_counts().gated, 2, "the third is missing");
    fixture.member("p2");
    fixture.check_decided("p0 to n0 with 1\np1 to n1 with 1\np2 to n0 with 1\ng True Scheduled");
}

#[test]
fn no_pod_of_a_gang_is_placed_unless_all_are() {
    let mut fixture = Fixture::new(GATES);
    fixture.gang("g", 5);
    for i in 0..5 {
        fixture.member(&format!("p{i}"));
    }
    let none = "0/2 nodes are available: 2 cannot allocate all claims";
    let outcome = fixture.run();
    let Outcome(actions) = &outcome;
    assert!(outcome.bound().is_none());
    let rejected = actions.iter().filter_map(|a| match a {
        Action::Reject(r) => Some(&*r.message),
        _ => None,
    });
    let rejected: Vec<&str> = rejected.collect();
    let waits =
        "waiting for minCount pods from a gang to be scheduled (minCount 5, 4 fit, p4 does not)";
    assert_eq!(rejected[..4], [waits; 4]);
    assert!(rejected[4].starts_with(none), "{}", rejected[4]);
    let told = actions.iter().find_map(|a| match a {
        Action::UpdatePodGroupStatus { condition, .. } => Some(condition),
        _ => None,
    });
    let told = told.expect("the group is told");
    let expected = format!("pod group is unschedulable (minCount 5, 4 fit, p4 does not: {none}");
    assert!(told.message.starts_with(&expected), "{}", told.message);
    assert_eq!((&*told.status, &*told.reason), ("False", "Unschedulable"));
    // The gang holds no devices: another pod gets them.
    assert_eq!(fixture.core.claims.in_flight_len(), 0);
    for name in ["a", "b", "c", "d"] {
        fixture.claim(name, json!({}));
        fixture.pod(name, &[name]);
    }
    let placed = fixture.run().0.into_iter();
    assert_eq!(placed.filter(|a| matches!(a, Action::Bind(_))).count(), 4);
}

#[test]
fn devices_that_come_are_enough_for_the_whole_gang() {
    let mut fixture = Fixture::new(GATES);
    fixture.gang("g", 5);
    for i in 0..5 {
        fixture.member(&format!("p{i}"));
    }
    assert!(fixture.run().bound().is_none());
    fixture.slice(
        "n1",
        json!([{"name": "d0"}, {"name": "d1"}, {"name": "d2"}]),
    );
    let placed = fixture.run().0.into_iter();
    assert_eq!(placed.filter(|a| matches!(a, Action::Bind(_))).count(), 5);
}

#[test]
fn pods_beyond_the_count_are_placed_as_far_as_they_fit() {
    let mut fixture = Fixture::new(GATES);
    fixture.gang("g", 2);
    for i in 0..5 {
        fixture.member(&format!("p{i}"));
    }
    let placed = fixture.run();
    let bound = |a: &&Action| matches!(a, Action::Bind(_));
    assert_eq!(placed.0.iter().filter(bound).count(), 4);
    assert!(
        placed.message().starts_with("0/2 nodes are available"),
        "{}",
        placed.message()
    );
}

#[test]
fn a_pod_of_an_unknown_group_waits_for_it() {
    let mut fixture = Fixture::new(GATES);
    fixture.member("p0");
    fixture.check_decided("");
    let pod = fixture.core.pods[&Key::new("ns", "p0")].clone();
    let time = fixture.time();
    let verdict = fixture.core.explain(&pod, time).expect("a profile");
    let why = verdict.before.expect("held back").to_string();
    assert_eq!(
        why,
        "waiting for pod's pod group \"g\" to appear in scheduling queue"
    );
    // Pods of a group without gang policy are placed one by one.
    fixture.any_group("g", json!({"schedulingPolicy": {"basic": {}}}));
    fixture.check_decided("p0 to n0 with 1");
}

/// The message about its gang stayed in its status until the group came back.
#[test]
fn a_pod_whose_group_goes_is_told_that_it_waits_for_it() {
    let mut fixture = Fixture::new(GATES);
    fixture.gang("g", 6);
    (0..5).for_each(|i| fixture.member(&format!("p{i}")));
    fixture.member_with("on", &[], json!({"nodeName": "n0"}));
    fixture.run();
    fixture.lose_group("g");
    let waits = "waits: waiting for pod's pod group \"g\" to appear in scheduling queue";
    let told: Vec<String> = (0..5).map(|i| format!("p{i} {waits}")).collect();
    fixture.check_decided(&told.join("\n"));
    // It is reported once.
    let none = Observed::Listed {
        items: Vec::new(),
        version: String::new(),
    };
    fixture.handle(Input::PodGroup(none));
    fixture.check_decided("");
}

#[test]
fn a_pod_that_needs_a_certain_device_is_tried_before_those_that_take_any() {
    let mut fixture = Fixture::new(GATES);
    fixture.node("n1", json!({"unschedulable": true}));
    fixture.slice(
        "n0",
        json!([{"name": "d0", "attributes": {"big": {"bool": true}}}, {"name": "d1"}]),
    );
    fixture.gang("g", 2);
    fixture.member("p0");
    fixture.any_claim("of-p1", big(), json!({}));
    fixture.member_with("p1", &["of-p1"], json!({}));
    fixture.check_decided("p1 to n0 with 1\np0 to n0 with 1\ng True Scheduled");
}

/// kubernetes/kubernetes#138765: upstream gives up, because the first pods take all there is.
#[test]
fn pods_that_could_do_with_less_leave_the_better_alternative_to_others() {
    let mut fixture = Fixture::new(GATES);
    fixture.gang("g", 3);
    for name in ["p0", "p1", "p2"] {
        fixture.any_claim(name, two_or_one(), json!({}));
        fixture.member_with(name, &[name], json!({}));
    }
    fixture.check_decided("p0 to n1 with 2\np1 to n0 with 1\np2 to n0 with 1\ng True Scheduled");
}

#[test]
fn the_pods_of_a_gang_share_its_claim() {
    let mut fixture = Fixture::new(&format!("{GATES},DRAWorkloadResourceClaims=true"));
    fixture.claim("a", json!({}));
    let entry = json!([{"name": "a", "resourceClaimName": "a"}]);
    let policy = json!({"gang": {"minCount": 2}});
    fixture.any_group(
        "g",
        json!({"schedulingPolicy": policy, "resourceClaims": entry}),
    );
    for name in ["p0", "p1"] {
        fixture.member_with(name, &["a"], json!({}));
    }
    fixture.check_decided("p0 to n0 with 1\np1 to n0 with 1\ng True Scheduled");
}

/// Both nodes are full of pods that may be driven away, and so many pods that fill a node are a gang.
fn full(gang: usize) -> Fixture {
    let mut fixture = Fixture::new(GATES);
    let four = json!([{"name": "c", "resources": {"requests": {"cpu": "4"}}}]);
    for node in ["n0", "n1"] {
        let more = json!({"nodeName": node, "containers": four, "priority": -1});
        fixture.any_pod(&format!("on-{node}"), &[], more);
    }
    fixture.gang("g", gang);
    for i in 0..gang {
        fixture.member_with(&format!("p{i}"), &[], json!({"containers": four}));
    }
    fixture
}

#[test]
fn others_go_when_that_makes_room_for_the_whole_gang() {
    let mut fixture = full(2);
    let left = "0/2 nodes are available: 2 Insufficient cpu.";
    fixture.check_decided(&format!(
        "p0 waits for n1: {left}\non-n1 goes\np1 waits for n0: {left}\non-n0 goes\n\
         g False Unschedulable pod group is waiting for preemption to complete"
    ));
    for name in ["on-n0", "on-n1"] {
        let gone = fixture.core.pods[&Key::new("ns", name)].clone();
        fixture.handle(Input::Pod(Observed::Deleted(Box::new(gone))));
    }
    fixture.check_decided("p0 to n1 with 0\np1 to n0 with 0\ng True Scheduled");
}

/// Found by simulation (seed 447): a gang whose pods differ in priority must not preempt itself on its nominated node
/// and be retried endlessly.
#[test]
fn the_pods_of_a_gang_do_not_displace_each_other() {
    let mut fixture = Fixture::new(GATES);
    fixture.node("n1", json!({"unschedulable": true}));
    fixture.slice(
        "n0",
        json!([{"name": "d0", "attributes": {"big": {"bool": true}}}, {"name": "d1"}]),
    );
    let four = json!([{"name": "c", "resources": {"requests": {"cpu": "4"}}}]);
    let leaves = json!({"nodeName": "n0", "containers": four, "priority": -1});
    fixture.any_pod("leaves", &[], leaves);
    fixture.gang("g", 2);
    let one = json!([{"name": "c", "resources": {"requests": {"cpu": "1"}}}]);
    fixture.claim("of-p0", json!({}));
    let more = json!({"containers": one, "priority": 10});
    fixture.member_with("p0", &["of-p0"], more);
    fixture.any_claim("of-p1", big(), json!({}));
    let more = json!({"containers": one, "priority": 5});
    fixture.member_with("p1", &["of-p1"], more);
    let time = fixture.time();
    let tries = (0..50)
        .take_while(|_| fixture.core.schedule_one(time))
        .count();
    assert!(tries < 10, "{tries} attempts while nothing happens");
    let expected = |w: &Fixture, pod: &str| {
        let pod = w.core.pods[&Key::new("ns", pod)].clone();
        w.core.nominated_node(&pod).map(str::to_owned)
    };
    for pod in ["p0", "p1"] {
        assert_eq!(expected(&fixture, pod).as_deref(), Some("n0"), "{pod}");
    }
}

#[test]
fn no_pod_is_preempted_when_that_is_not_enough_for_the_gang() {
    let mut fixture = full(3);
    let outcome = fixture.run();
    let goes = |a: &Action| matches!(a, Action::Preempt { .. });
    assert!(!outcome.0.iter().any(goes), "three do not fit on two nodes");
    let waits = |a: &Action| matches!(a, Action::Reject(r) if r.message.contains("minCount 3, 0 fit, p0 does not"));
    assert!(outcome.0.iter().any(waits));
}

#[test]
fn a_pod_that_replaces_one_of_a_gang_is_placed_alone() {
    let mut fixture = Fixture::new(GATES);
    fixture.gang("g", 3);
    for name in ["p0", "p1"] {
        fixture.member_with(name, &[], json!({"nodeName": "n0"}));
    }
    fixture.member("p2");
    fixture.check_decided("p2 to n1 with 1\ng True Scheduled");
}

#[test]
fn a_gang_has_one_scheduler() {
    let mut fixture = Fixture::new(GATES);
    let second = Profile {
        name: "second".into(),
        ..Profile::default()
    };
    fixture.core.config.profiles.push(second);
    fixture.gang("g", 2);
    fixture.member("p0");
    fixture.member_with("p1", &[], json!({"schedulerName": "second"}));
    let why = r#"all pods in a single pod group should have the same .spec.schedulerName set, got: "default-scheduler" and "second""#;
    fixture.check_decided(&format!(
        "p0 waits: {why}\np1 waits: {why}\ng False SchedulerError {why}"
    ));
}

#[test]
fn what_is_told_about_a_group_again_is_not_written() {
    let mut fixture = Fixture::new(GATES);
    fixture.gang("g", 5);
    for i in 0..5 {
        fixture.member(&format!("p{i}"));
    }
    let told = |outcome: Outcome| {
        let mut actions = outcome.0.iter();
        actions.any(|a| matches!(a, Action::UpdatePodGroupStatus { .. }))
    };
    assert!(told(fixture.run()));
    fixture.slice("n0", json!([{"name": "d0"}, {"name": "d1"}]));
    assert!(!told(fixture.run()));
}
