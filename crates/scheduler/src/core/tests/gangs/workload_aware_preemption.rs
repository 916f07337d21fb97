//! Preemption by PodGroups, and of PodGroups as a whole. Nodes have four processors.

use super::*;
use crate::core::GangOutcome;

const GATES: &str = "GenericWorkload=true,GangScheduling=true,WorkloadAwarePreemption=true";

/// Containers that request so many processors.
fn cpus(count: u32) -> Value {
    json!([{"name": "c", "resources": {"requests": {"cpu": count.to_string()}}}])
}

/// A cluster of nodes `n0`, `n1`, … and the gang `g` of priority 10, whose pods `p0`, `p1`, … each need most of a node.
fn cluster(nodes: usize, gang: usize) -> Fixture {
    let mut fixture = Fixture::new(GATES);
    for at in 2..nodes {
        fixture.node(&format!("n{at}"), json!({}));
    }
    let policy = json!({"gang": {"minCount": gang}});
    fixture.any_group("g", json!({"schedulingPolicy": policy, "priority": 10}));
    fixture
}

impl Fixture {
    /// Creates the pods of the gang.
    fn gang_pods(&mut self, count: usize, more: Value) {
        for at in 0..count {
            let mut spec = json!({"containers": cpus(3), "priority": 10});
            for (key, value) in more.as_object().into_iter().flatten() {
                spec[key] = value.clone();
            }
            self.member_with(&format!("p{at}"), &[], spec);
        }
    }

    /// A pod that takes most of a node, in a group.
    fn grouped(&mut self, name: &str, priority: i32, node: &str, group: &str) {
        let spec = json!({
            "containers": cpus(3), "priority": priority, "nodeName": node,
            "schedulingGroup": {"podGroupName": group},
        });
        self.any_pod(name, &[], spec);
    }

    fn low_group(&mut self, name: &str, priority: i32, mode: Value) {
        let policy = json!({"basic": {}});
        let spec =
            json!({"schedulingPolicy": policy, "priority": priority, "disruptionMode": mode});
        self.any_group(name, spec);
    }
}

/// Checks which pods are preempted for the gang, in one decision.
#[track_caller]
fn check_victims(fixture: &mut Fixture, expected: &[&str]) {
    let preempted = fixture.settle().preempted();
    let expected: Vec<_> = match expected {
        [] => vec![],
        pods => vec![("g".to_owned(), pods.join(" "))],
    };
    assert_eq!(preempted, expected);
}

#[test]
fn pods_on_several_nodes_are_preempted_for_a_gang() {
    let mut fixture = cluster(3, 2);
    fixture.plain("l0", 3, 1, Some("n0"));
    fixture.plain("l1", 3, 0, Some("n1"));
    fixture.plain("l2", 3, 2, Some("n2"));
    fixture.gang_pods(2, json!({}));
    // The least important ones, wherever they are.
    check_victims(&mut fixture, &["l0", "l1"]);
    let mut kept = fixture.kept(&["p0", "p1"]);
    kept.sort();
    assert_eq!(kept, [Some("n0".to_owned()), Some("n1".to_owned())]);
}

#[test]
fn a_gang_waits_for_its_victims_and_is_bound() {
    let mut fixture = cluster(2, 2);
    fixture.plain("l0", 3, 0, Some("n0"));
    fixture.plain("l1", 3, 0, Some("n1"));
    fixture.gang_pods(2, json!({}));
    check_victims(&mut fixture, &["l0", "l1"]);
    let kept = fixture.kept(&["p0", "p1"]);
    for victim in ["l1", "l0"] {
        fixture.leaves_for_others(victim);
        check_victims(&mut fixture, &[]);
        assert_eq!(fixture.kept(&["p0", "p1"]), kept, "{victim}");
    }
    fixture.gone("l0");
    check_victims(&mut fixture, &[]);
    assert_eq!(fixture.kept(&["p0", "p1"]), kept);
    fixture.gone("l1");
    let placed = fixture.settle().0.into_iter();
    assert_eq!(placed.filter(|a| matches!(a, Action::Bind(_))).count(), 2);
}

#[test]
fn nothing_is_preempted_if_that_does_not_make_the_gang_fit() {
    let mut fixture = cluster(2, 3);
    fixture.plain("l0", 3, 0, Some("n0"));
    fixture.plain("l1", 3, 0, Some("n1"));
    fixture.gang_pods(3, json!({}));
    let outcome = fixture.settle();
    assert_eq!(outcome.preempted(), []);
    let text = "preemption: not eligible due to workload aware preemption enabled";
    assert!(outcome.message().contains(text), "{}", outcome.message());
    let condition = outcome.0.iter().find_map(|action| match action {
        Action::UpdatePodGroupStatus { condition, .. } => Some(condition.message.clone()),
        _ => None,
    });
    let condition = condition.expect("a condition");
    assert!(
        condition.contains("preemption: the pod group does not fit"),
        "{condition}"
    );
    assert_eq!(fixture.kept(&["p0", "p1", "p2"]), [None, None, None]);
    // Everything is where it was.
    assert_eq!(
        fixture.core.cache.node_of("uid-l0").map(|node| &**node),
        Some("n0")
    );
    assert_eq!(
        fixture.core.cache.node_of("uid-l1").map(|node| &**node),
        Some("n1")
    );
}

#[test]
fn gangs_do_not_preempt_pods_of_the_same_priority_or_if_they_must_not() {
    let mut fixture = cluster(2, 1);
    fixture.plain("l0", 3, 10, Some("n0"));
    fixture.plain("l1", 3, 11, Some("n1"));
    fixture.gang_pods(1, json!({}));
    check_victims(&mut fixture, &[]);
    let mut fixture = cluster(2, 1);
    fixture.plain("l0", 3, 0, Some("n0"));
    fixture.plain("l1", 3, 0, Some("n1"));
    fixture.gang_pods(1, json!({"preemptionPolicy": "Never"}));
    check_victims(&mut fixture, &[]);
}

/// Its pods may be preempted one by one in the other mode.
#[test]
fn a_group_with_the_disruption_mode_pod_group_is_preempted_as_a_whole() {
    let check = |mode: Value, expected: &[&str]| {
        let mut fixture = cluster(3, 1);
        fixture.low_group("low", 0, mode);
        for (name, node) in [("w0", "n0"), ("w1", "n1"), ("w2", "n2")] {
            fixture.grouped(name, 0, node, "low");
        }
        fixture.gang_pods(1, json!({}));
        check_victims(&mut fixture, expected);
    };
    check(json!("PodGroup"), &["w0", "w1", "w2"]);
    // As a group of 1.37 states it.
    check(json!({"all": {}}), &["w0", "w1", "w2"]);
    check(json!("Pod"), &["w2"]);
    check(json!({"single": {}}), &["w2"]);
    check(Value::Null, &["w2"]);
}

#[test]
fn a_group_is_more_important_than_a_pod_of_the_same_priority() {
    let mut fixture = cluster(3, 1);
    fixture.low_group("low", 0, json!("PodGroup"));
    fixture.plain("l0", 3, 0, Some("n0"));
    fixture.grouped("w1", 0, "n1", "low");
    fixture.grouped("w2", 0, "n2", "low");
    fixture.gang_pods(1, json!({}));
    check_victims(&mut fixture, &["l0"]);
}

#[test]
fn the_priority_of_a_group_protects_its_pods() {
    let mut fixture = cluster(2, 1);
    fixture.low_group("low", 20, json!("PodGroup"));
    fixture.grouped("w0", 0, "n0", "low");
    fixture.plain("l1", 3, 5, Some("n1"));
    fixture.gang_pods(1, json!({}));
    check_victims(&mut fixture, &["l1"]);
}

#[test]
fn pods_of_the_gang_itself_are_not_preempted() {
    let mut fixture = cluster(2, 2);
    fixture.grouped("p0", 0, "n0", "g");
    fixture.plain("l1", 3, 5, Some("n1"));
    let spec = json!({"containers": cpus(3), "priority": 10});
    fixture.member_with("p1", &[], spec);
    check_victims(&mut fixture, &["l1"]);
}

#[test]
fn a_pod_beyond_min_count_preempts_with_its_group() {
    let mut fixture = cluster(2, 1);
    fixture.grouped("p0", 10, "n0", "g");
    fixture.plain("l1", 3, 5, Some("n1"));
    let spec = json!({"containers": cpus(3), "priority": 10});
    fixture.member_with("p1", &[], spec);
    check_victims(&mut fixture, &["l1"]);
}

#[test]
fn pods_whose_budget_would_be_violated_are_reprieved_first() {
    let mut fixture = cluster(2, 1);
    for (name, node, app) in [("l0", "n0", "a"), ("l1", "n1", "b")] {
        let spec = json!({"containers": cpus(3), "priority": 0, "nodeName": node});
        let pod: Box<Pod> = fixture.object(json!({
            "metadata": {
                "name": name, "namespace": "ns", "uid": format!("uid-{name}"), "labels": {"app": app},
            },
            "spec": spec,
        }));
        let info = Arc::new(PodInfo::observed(*pod));
        fixture.handle(Input::Pod(Observed::Applied(Box::new(info))));
    }
    let budget = fixture.object(json!({
        "metadata": {"name": "b", "namespace": "ns"},
        "spec": {"selector": {"matchLabels": {"app": "b"}}},
        "status": {"disruptionsAllowed": 0},
    }));
    fixture.handle(Input::Budget(Observed::Applied(budget)));
    fixture.gang_pods(1, json!({}));
    check_victims(&mut fixture, &["l0"]);
}

#[test]
fn it_is_explained_which_pods_are_preempted_for_a_gang() {
    let mut fixture = cluster(2, 2);
    fixture.plain("l0", 3, 0, Some("n0"));
    fixture.plain("l1", 3, 0, Some("n1"));
    fixture.gang_pods(2, json!({}));
    let gang = fixture.explained("p0").gang.expect("a gang");
    let GangOutcome::Preempts(victims) = gang.outcome else {
        panic!("{:?}", gang.outcome);
    };
    let names: Vec<&str> = victims.iter().map(|key| &*key.name).collect();
    assert_eq!(names, ["l0", "l1"]);
    assert!(gang.members.iter().all(|member| member.node.is_some()));
}

/// Without the gate each pod of a gang preempts for itself.
#[test]
fn without_the_gate_priorities_and_modes_of_groups_do_not_count() {
    let mut fixture = Fixture::new(super::GATES);
    let policy = json!({"gang": {"minCount": 1}});
    fixture.any_group("g", json!({"schedulingPolicy": policy}));
    fixture.low_group("low", 20, json!("PodGroup"));
    fixture.grouped("w0", 0, "n0", "low");
    fixture.grouped("w1", 0, "n1", "low");
    fixture.gang_pods(1, json!({}));
    let preempted = fixture.settle().preempted();
    assert_eq!(preempted.len(), 1, "{preempted:?}");
    assert!(!preempted[0].1.contains(' '), "{preempted:?}");
    assert_eq!(preempted[0].0, "p0");
}
