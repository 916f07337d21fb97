//! What people are told who ask about a pod.

use super::*;
use crate::core::Verdict;

impl World {
    pub(super) fn explained(&mut self, pod: &str) -> Verdict {
        let (time, pod) = (self.time(), self.known(pod));
        self.core.explain(&pod, time).expect("a profile")
    }

    /// One line per node, then where the pod would go.
    fn check_explained(&mut self, pod: &str, expected: &str) {
        let verdict = self.explained(pod);
        let mut told = String::new();
        if let Some(rejection) = &verdict.before {
            told += &format!("none: {rejection}\n");
        }
        for node in &verdict.nodes {
            let why = node.rejection.as_ref().map(ToString::to_string);
            told += &format!("{}: {}\n", node.name, why.unwrap_or("fits".to_owned()));
            for request in node.explanation.iter().flat_map(|e| &e.requests) {
                let (request, needs, left) = (&request.request, request.needs, request.left());
                told += &format!("  {request} needs {needs}, {left} left\n");
            }
        }
        if let Some(chosen) = &verdict.chosen {
            let allocated = chosen.allocations.iter();
            let claims: Vec<String> = allocated.map(|(key, _)| key.to_string()).collect();
            told += &format!("to {} with [{}]\n", chosen.node, claims.join(" "));
        }
        assert_eq!(told, expected);
    }
}

#[test]
fn every_node_says_why() {
    let mut world = World::new("");
    world.node("n1", json!({"unschedulable": true}));
    world.node("n2", json!({}));
    world.claim("a", json!({}));
    world.pod("p", &["a"]);
    world.check_explained(
        "p",
        "n0: fits\n\
         n1: node(s) were unschedulable\n\
         n2: cannot allocate all claims\n  r needs 1, 0 left\n\
         to n0 with [ns/a]\n",
    );
    // Asking changes nothing.
    assert_eq!(world.run().node(), Some("n0"));
}

#[test]
fn people_are_told_of_room_that_is_made_and_kept() {
    let mut world = World::new("");
    world.node("n1", json!({"unschedulable": true}));
    world.plain("leaves", 4, 0, Some("n0"));
    world.plain("p", 4, 10, None);
    world.run();
    world.leaves("leaves");
    let verdict = world.explained("p");
    let expected = verdict.expected.expect("a node");
    assert_eq!(&*expected.node, "n0");
    assert_eq!(expected.leaving, [Key::new("ns", "leaves")]);
    world.gone("leaves");
    world.plain("q", 4, 0, None);
    let verdict = world.explained("q");
    assert_eq!(verdict.nodes[0].kept_for, [Key::new("ns", "p")]);
    assert!(verdict.nodes[0].rejection.is_some() && verdict.expected.is_none());
}

#[test]
fn a_pod_that_no_node_is_asked_about_says_why() {
    let mut world = World::new("");
    world.pod("p", &["missing"]);
    world.check_explained(
        "p",
        "none: resourceclaim.resource.k8s.io \"missing\" not found\n",
    );
    world.any_pod(
        "q",
        &[],
        json!({"schedulingGates": [{"name": "x"}, {"name": "y"}]}),
    );
    world.check_explained("q", "none: waiting for scheduling gates: [x y]\n");
}
