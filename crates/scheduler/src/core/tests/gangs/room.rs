//! PodGroups for which others have to go: what is kept for them, and until when.

use super::*;

/// Four nodes, each with a pod that may be driven away, and a gang of three that take a node each.
fn crowded() -> World {
    let mut world = World::new(GATES);
    for node in ["n2", "n3"] {
        world.node(node, json!({}));
    }
    for at in 0..4 {
        world.plain(&format!("l{at}"), 3, -1, Some(&format!("n{at}")));
    }
    world.gang("g", 3);
    for name in ["p0", "p1", "p2"] {
        let three = json!([{"name": "c", "resources": {"requests": {"cpu": "3"}}}]);
        world.member_with(name, &[], json!({"containers": three, "priority": 10}));
    }
    world
}

impl World {
    /// Like the main loop, it also tries recently rejected pods when no other pod is ready.
    fn settle(&mut self) -> Outcome {
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
    fn kept(&self, pods: &[&str]) -> Vec<Option<String>> {
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
    let mut world = crowded();
    let victims = world.driven_away();
    assert_eq!(victims.len(), 3, "{victims:?}");
    let kept = world.kept(&GANG);
    assert!(kept.iter().all(Option::is_some), "{kept:?}");
    for victim in victims.iter().rev() {
        world.leaves_for_others(victim);
        assert!(world.driven_away().is_empty(), "{victim} is seen leaving");
        assert_eq!(world.kept(&GANG), kept, "{victim} is seen leaving");
    }
    // Not in the order in which they were chosen.
    for victim in victims.iter().skip(1) {
        world.gone(victim);
        assert!(world.driven_away().is_empty(), "{victim} is gone");
        assert_eq!(world.kept(&GANG), kept, "{victim} is gone");
    }
    world.gone(&victims[0]);
    let placed = world.settle().0.into_iter();
    assert_eq!(placed.filter(|a| matches!(a, Action::Bind(_))).count(), 3);
}

/// Found by trying: a gang waited for a pod that did not go, beside a node that had got free.
#[test]
fn a_gang_that_waits_for_others_takes_another_place() {
    let mut world = crowded();
    let victims = world.driven_away();
    for victim in &victims {
        world.leaves_for_others(victim);
    }
    world.settle();
    let free = ["l0", "l1", "l2", "l3"].into_iter();
    let free = free.filter(|l| !victims[..1].iter().any(|v| v == l));
    for name in free.collect::<Vec<_>>() {
        world.leaves_for_others(name);
        world.gone(name);
    }
    let placed = world.settle().0.into_iter();
    assert_eq!(placed.filter(|a| matches!(a, Action::Bind(_))).count(), 3);
}

/// Capacity reserved for a gang that can no longer be tried is available to other pods.
#[track_caller]
fn check_given_up(happens: impl FnOnce(&mut World), told: &str) {
    let mut world = crowded();
    for victim in world.driven_away() {
        world.leaves_for_others(&victim);
        world.gone(&victim);
    }
    // Nothing was decided yet after they had gone.
    happens(&mut world);
    let outcome = world.settle();
    let rejected = outcome.0.iter().filter_map(|a| match a {
        Action::Reject(r) => Some(&*r.message),
        _ => None,
    });
    let rejected: Vec<&str> = rejected.collect();
    assert!(
        rejected.iter().all(|r| r.contains(told)) && rejected.len() >= 2,
        "{rejected:?}"
    );
    assert_eq!(world.kept(&["p0", "p1"]), [None, None]);
    world.plain("other", 3, 0, None);
    assert!(world.settle().node().is_some());
}

#[test]
fn a_gang_whose_group_was_deleted_has_no_nominations() {
    check_given_up(|world| world.lose_group("g"), "waiting for pod's pod group");
}

#[test]
fn a_gang_that_lost_a_pod_keeps_nothing() {
    check_given_up(
        |world| world.gone("p2"),
        "waiting for minCount pods from a gang",
    );
}
