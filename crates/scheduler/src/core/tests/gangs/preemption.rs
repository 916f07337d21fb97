//! PodGroups for which others have to go: what is kept for them, and until when.

use super::*;

/// Four nodes, each with a pod that may be driven away, and a gang of three that take a node each.
fn crowded() -> Fixture {
    let mut fixture = Fixture::new(GATES);
    for node in ["n2", "n3"] {
        fixture.node(node, json!({}));
    }
    for at in 0..4 {
        fixture.plain(&format!("l{at}"), 3, -1, Some(&format!("n{at}")));
    }
    fixture.gang("g", 3);
    for name in ["p0", "p1", "p2"] {
        let three = json!([{"name": "c", "resources": {"requests": {"cpu": "3"}}}]);
        fixture.member_with(name, &[], json!({"containers": three, "priority": 10}));
    }
    fixture
}

impl Fixture {
    /// Like the main loop, it also tries recently rejected pods when no other pod is ready.
    pub(super) fn settle(&mut self) -> Outcome {
        let time = self.time();
        let mut actions = self.core.take_actions();
        let tries = (0..50).take_while(|_| {
            let more = self.core.schedule_one(time);
            actions.extend(self.core.take_actions());
            more
        });
        assert!(tries.count() < 50, "endless attempts");
        Outcome(actions)
    }

    /// The pods preempted by the current decision.
    fn driven_away(&mut self) -> Vec<String> {
        let outcome = self.settle();
        let victims = outcome.0.iter().filter_map(|a| match a {
            Action::Preempt { victims, .. } => Some(victims.iter()),
            _ => None,
        });
        victims.flatten().map(|v| v.key.name.to_string()).collect()
    }

    /// The nodes that are kept for pods.
    pub(super) fn kept(&self, pods: &[&str]) -> Vec<Option<String>> {
        let on = |name: &&str| {
            let pod = self.known(name);
            self.core.nominated_node(&pod).map(str::to_owned)
        };
        pods.iter().map(on).collect()
    }
}

const GANG: [&str; 3] = ["p0", "p1", "p2"];

/// Found by trying: victims are seen leaving one after the other, and each time the gang chose others, forgot where it was
/// expected, and drove one more away.
#[test]
fn a_gang_waits_until_all_are_seen_leaving() {
    let mut fixture = crowded();
    let victims = fixture.driven_away();
    assert_eq!(victims.len(), 3, "{victims:?}");
    let kept = fixture.kept(&GANG);
    assert!(kept.iter().all(Option::is_some), "{kept:?}");
    for victim in victims.iter().rev() {
        fixture.leaves_for_others(victim);
        assert!(fixture.driven_away().is_empty(), "{victim} is seen leaving");
        assert_eq!(fixture.kept(&GANG), kept, "{victim} is seen leaving");
    }
    // Not in the order in which they were chosen.
    for victim in victims.iter().skip(1) {
        fixture.gone(victim);
        assert!(fixture.driven_away().is_empty(), "{victim} is gone");
        assert_eq!(fixture.kept(&GANG), kept, "{victim} is gone");
    }
    fixture.gone(&victims[0]);
    let placed = fixture.settle().0.into_iter();
    assert_eq!(placed.filter(|a| matches!(a, Action::Bind(_))).count(), 3);
}

/// Found by trying: a gang waited for a pod that did not go, beside a node that had got free.
#[test]
fn a_gang_that_waits_for_others_takes_another_place() {
    let mut fixture = crowded();
    let victims = fixture.driven_away();
    for victim in &victims {
        fixture.leaves_for_others(victim);
    }
    fixture.settle();
    let free = ["l0", "l1", "l2", "l3"].into_iter();
    let free = free.filter(|l| !victims[..1].iter().any(|v| v == l));
    for name in free.collect::<Vec<_>>() {
        fixture.leaves_for_others(name);
        fixture.gone(name);
    }
    let placed = fixture.settle().0.into_iter();
    assert_eq!(placed.filter(|a| matches!(a, Action::Bind(_))).count(), 3);
}

/// Capacity reserved for a gang that can no longer be tried is available to other pods.
#[track_caller]
fn check_given_up(happens: impl FnOnce(&mut Fixture), told: &str) {
    let mut fixture = crowded();
    for victim in fixture.driven_away() {
        fixture.leaves_for_others(&victim);
        fixture.gone(&victim);
    }
    // Nothing was decided yet after they had gone.
    happens(&mut fixture);
    let outcome = fixture.settle();
    let rejected = outcome.0.iter().filter_map(|a| match a {
        Action::Reject(r) => Some(&*r.message),
        _ => None,
    });
    let rejected: Vec<&str> = rejected.collect();
    assert!(
        rejected.iter().all(|r| r.contains(told)) && rejected.len() >= 2,
        "{rejected:?}"
    );
    assert_eq!(fixture.kept(&["p0", "p1"]), [None, None]);
    fixture.plain("other", 3, 0, None);
    assert!(fixture.settle().node().is_some());
}

#[test]
fn a_gang_whose_group_was_deleted_has_no_nominations() {
    check_given_up(
        |fixture| fixture.lose_group("g"),
        "waiting for pod's pod group",
    );
}

/// As upstream. An error may be repeated forever, and others could not use the nodes.
#[test]
fn regression_a_gang_that_fails_keeps_nothing() {
    let fails = |fixture: &mut Fixture| {
        let name = "second".into();
        let second = Profile {
            name,
            ..Profile::default()
        };
        fixture.core.config.profiles.push(second);
        fixture.member_with(
            "p3",
            &[],
            json!({"schedulerName": "second", "priority": 10}),
        );
    };
    check_given_up(fails, "all pods in a single pod group should have the same");
}

#[test]
fn a_gang_that_lost_a_pod_keeps_nothing() {
    check_given_up(
        |fixture| fixture.gone("p2"),
        "waiting for minCount pods from a gang",
    );
}
