//! What `allot explain` says about a pod of a gang.

use super::*;
use crate::core::GangOutcome;

impl Fixture {
    /// The outcome of the gang, a line for each of its pods, the pod left out, and the node of the pod.
    fn check_gang_explained(&mut self, pod: &str, expected: &str) {
        let verdict = self.explained(pod);
        let gang = verdict.gang.expect("a gang");
        let (name, count, placed) = (&gang.group.name, gang.min_count, gang.placed());
        let mut told = format!("{name} of {count}, {placed} placed: ");
        told += &match gang.outcome {
            GangOutcome::Fits => "fits".to_owned(),
            GangOutcome::Preempts(pods) => {
                let pods: Vec<&str> = pods.iter().map(|p| &*p.name).collect();
                format!("fits without {}", pods.join(" "))
            }
            GangOutcome::TooFewPlaces(count) => count,
            GangOutcome::Waits(why) => format!("waits: {why}"),
            GangOutcome::Fails(why) => format!("fails: {why}"),
        };
        let first = |why: &str| {
            why.split(" (")
                .flat_map(|part| part.split(". "))
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        for member in gang.members {
            let why = member.why_not.as_deref().map(first).unwrap_or_default();
            let place = member.node.map_or(why, |node| format!("to {node}"));
            told += &format!("\n{} {place}", member.name);
        }
        if let Some(left_out) = gang.left_out {
            told += &format!("\nleft out: {}", left_out.pod.name);
            for node in &left_out.nodes {
                let why = node.rejection.as_ref().map(ToString::to_string);
                told += &format!(", {} {}", node.name, why.as_deref().unwrap_or("fits"));
            }
        }
        if let Some(chosen) = verdict.chosen {
            let claims: Vec<String> = chosen
                .allocations
                .iter()
                .map(|(k, _)| k.to_string())
                .collect();
            told += &format!(
                "\n{pod} goes to {} with [{}]",
                chosen.node,
                claims.join(" ")
            );
        }
        let told: Vec<&str> = told.lines().map(str::trim_end).collect();
        assert_eq!(told.join("\n"), expected);
    }
}

/// It was told that it fits, while its group was told that it does not.
#[test]
fn a_pod_of_a_gang_does_not_fit_where_the_gang_does_not() {
    let mut fixture = Fixture::new(GATES);
    fixture.gang("g", 5);
    (0..5).for_each(|i| fixture.member(&format!("p{i}")));
    let lacks = "0/2 nodes are available: 2 cannot allocate all claims";
    for asked in ["p0", "p4"] {
        fixture.check_gang_explained(
            asked,
            &format!(
                "g of 5, 0 placed: minCount 5, 4 fit, p4 does not\np0\np1\np2\np3\np4 {lacks}\n\
                 left out: p4, n0 cannot allocate all claims, n1 cannot allocate all claims"
            ),
        );
    }
    let alone = fixture.explained("p0").nodes;
    assert!(alone.iter().all(|n| n.rejection.is_none()));
    // Asking changed nothing.
    assert_eq!(fixture.core.claims.in_flight_len(), 0);
    assert!(fixture.core.take_actions().is_empty());
    assert_eq!(fixture.core.queue_counts().active, 5);
    fixture.slice(
        "n1",
        json!([{"name": "d0"}, {"name": "d1"}, {"name": "d2"}]),
    );
    fixture.check_gang_explained(
        "p4",
        "g of 5, 0 placed: fits\np0 to n0\np1 to n1\np2 to n0\np3 to n1\np4 to n1\n\
         p4 goes to n1 with [ns/of-p4]",
    );
    let placed = fixture.run().0.into_iter();
    assert_eq!(placed.filter(|a| matches!(a, Action::Bind(_))).count(), 5);
}

#[test]
fn a_pod_beyond_the_count_may_be_left_out() {
    let mut fixture = Fixture::new(GATES);
    fixture.gang("g", 2);
    (0..5).for_each(|i| fixture.member(&format!("p{i}")));
    let lacks = "0/2 nodes are available: 2 cannot allocate all claims";
    let places = format!("p0 to n0\np1 to n1\np2 to n0\np3 to n1\np4 {lacks}");
    fixture.check_gang_explained(
        "p3",
        &format!("g of 2, 0 placed: fits\n{places}\np3 goes to n1 with [ns/of-p3]"),
    );
    fixture.check_gang_explained(
        "p4",
        &format!(
            "g of 2, 0 placed: fits\n{places}\n\
             left out: p4, n0 cannot allocate all claims, n1 cannot allocate all claims"
        ),
    );
}

#[test]
fn a_gang_that_is_not_complete_says_what_it_waits_for() {
    let mut fixture = Fixture::new(GATES);
    fixture.gang("g", 3);
    fixture.member("p0");
    fixture.member_with("p1", &[], json!({"nodeName": "n0"}));
    let waits = "waiting for minCount pods from a gang to appear in scheduling queue";
    fixture.check_gang_explained(
        "p0",
        &format!("g of 3, 1 placed: waits: {waits}\np0 {waits}\np1 to n0"),
    );
    let before = fixture.explained("p0").before.map(|r| r.message());
    assert_eq!(before.as_deref(), Some(waits));
    fixture.member_with("p2", &["missing"], json!({}));
    fixture.check_gang_explained(
        "p0",
        "g of 3, 1 placed: waits: only 1 of 2 pods that are needed can be tried\n\
         p0\np1 to n0\np2 resourceclaim.resource.k8s.io \"missing\" not found",
    );
}

#[test]
fn victims_of_a_gang_are_reported() {
    let mut fixture = full(2);
    fixture.check_gang_explained(
        "p0",
        "g of 2, 0 placed: fits without on-n1 on-n0\np0 to n1\np1 to n0",
    );
    let mut fixture = full(3);
    fixture.check_gang_explained(
        "p1",
        "g of 3, 0 placed: minCount 3, 0 fit, p0 does not\n\
         p0 0/2 nodes are available: 2 Insufficient cpu.\np1\np2\n\
         left out: p0, n0 Insufficient cpu, n1 Insufficient cpu",
    );
}

#[test]
fn a_pod_of_a_group_that_is_no_gang_is_judged_alone() {
    let mut fixture = Fixture::new(GATES);
    fixture.any_group("g", json!({"schedulingPolicy": {"basic": {}}}));
    fixture.member("p0");
    let verdict = fixture.explained("p0");
    assert!(verdict.gang.is_none());
    assert_eq!(verdict.chosen.map(|c| c.node).as_deref(), Some("n0"));
}
