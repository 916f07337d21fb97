//! What `allot explain` says about a pod.

use super::*;
use crate::core::Verdict;

impl Fixture {
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
    let mut fixture = Fixture::new("");
    fixture.node("n1", json!({"unschedulable": true}));
    fixture.node("n2", json!({}));
    fixture.claim("a", json!({}));
    fixture.pod("p", &["a"]);
    fixture.check_explained(
        "p",
        "n0: fits\n\
         n1: node(s) were unschedulable\n\
         n2: cannot allocate all claims\n  r needs 1, 0 left\n\
         to n0 with [ns/a]\n",
    );
    // Asking changes nothing.
    assert_eq!(fixture.run().node(), Some("n0"));
}

#[test]
fn events_name_preemption_and_nominations() {
    let mut fixture = Fixture::new("");
    fixture.node("n1", json!({"unschedulable": true}));
    fixture.plain("leaves", 4, 0, Some("n0"));
    fixture.plain("p", 4, 10, None);
    fixture.run();
    fixture.leaves("leaves");
    let verdict = fixture.explained("p");
    let expected = verdict.expected.expect("a node");
    assert_eq!(&*expected.node, "n0");
    assert_eq!(expected.leaving, [Key::new("ns", "leaves")]);
    fixture.gone("leaves");
    fixture.plain("q", 4, 0, None);
    let verdict = fixture.explained("q");
    assert_eq!(verdict.nodes[0].kept_for, [Key::new("ns", "p")]);
    assert!(verdict.nodes[0].rejection.is_some() && verdict.expected.is_none());
    // It would not fit there without the other pod either.
    fixture.plain("r", 5, 0, None);
    let verdict = fixture.explained("r");
    assert!(verdict.nodes[0].rejection.is_some() && verdict.nodes[0].kept_for.is_empty());
}

#[test]
fn a_pod_that_no_node_is_asked_about_says_why() {
    let mut fixture = Fixture::new("");
    fixture.pod("p", &["missing"]);
    fixture.check_explained(
        "p",
        "none: resourceclaim.resource.k8s.io \"missing\" not found\n",
    );
    fixture.any_pod(
        "q",
        &[],
        json!({"schedulingGates": [{"name": "x"}, {"name": "y"}]}),
    );
    fixture.check_explained("q", "none: waiting for scheduling gates: [x y]\n");
}

/// The condition and the event of the pod that is refused.
fn refused(fixture: &mut Fixture) -> (String, String) {
    let outcome = fixture.run();
    let rejected = outcome.0.iter().find_map(|a| match a {
        Action::Reject(rejected) => Some(rejected),
        _ => None,
    });
    let rejected = rejected.expect("a rejection");
    let explanation = rejected.explanation.as_deref();
    let event = crate::message::explained(&rejected.message, explanation);
    (rejected.message.clone(), event)
}

#[test]
fn the_condition_has_upstreams_text_and_the_event_goes_on() {
    let mut fixture = Fixture::new("");
    fixture.slice("n0", json!([]));
    fixture.claim("b", allocated("n1", &["q"]));
    let two = json!({"name": "r", "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 2}});
    fixture.any_claim("a", two, json!({}));
    fixture.pod("p", &["a"]);
    let (condition, event) = refused(&mut fixture);
    let text = "0/2 nodes are available: 2 cannot allocate all claims. still not schedulable, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.";
    assert_eq!(condition, text);
    let nearest = "Nearest is node n1: claim ns/a, request r needs 2 devices, 2 seen, 1 not in use; nearest is n1/d0: in use by ns/b.";
    assert_eq!(event, format!("{text} {nearest}"));
}

#[test]
fn the_node_that_came_nearest_is_explained() {
    let check = |change: &dyn Fn(&mut Fixture), expected: &str| {
        let mut fixture = Fixture::new("");
        change(&mut fixture);
        fixture.claim("a", json!({}));
        fixture.claim("b", json!({}));
        fixture.pod("p", &["a", "b"]);
        let (condition, event) = refused(&mut fixture);
        let explanation = event.strip_prefix(&condition).expect("the condition first");
        assert_eq!(explanation.trim(), expected);
    };
    // Of nodes that satisfy as many requests, the one that fewer plugins reject.
    check(
        &|fixture| {
            fixture.slice("n0", json!([]));
            fixture.node("n1", json!({"unschedulable": true}));
        },
        "Nearest is node n1: node(s) were unschedulable; it has the devices.",
    );
    // Requests are looked at one by one.
    check(
        &|fixture| {
            fixture.slice("n0", json!([]));
            fixture.slice("n1", json!([{"name": "d0"}]));
        },
        "Nearest is node n1: there are not enough devices for all requests together.",
    );
    // Of equal ones, the first.
    check(
        &|fixture| {
            fixture.slice("n0", json!([]));
            fixture.slice("n1", json!([]));
        },
        "Nearest is node n0: claim ns/a, request r needs 1 device, the node has none.",
    );
}

/// Readers of a pod's events may not learn names of other namespaces.
#[test]
fn messages_do_not_name_what_is_in_other_namespaces() {
    let mut fixture = Fixture::new("");
    for (node, name) in [("n0", "secret-1"), ("n1", "secret-2")] {
        fixture.slice(node, json!([{"name": "d0"}]));
        let claim = fixture.object(json!({
            "metadata": {"name": name, "namespace": "team-b", "uid": format!("uid-{name}")},
            "spec": {"devices": {"requests": []}},
            "status": allocated(node, &["secret-pod"]),
        }));
        fixture.handle(Input::Claim(Observed::Applied(claim)));
    }
    fixture.claim("a", json!({}));
    fixture.pod("p", &["a"]);
    let (_, event) = refused(&mut fixture);
    assert!(
        event.ends_with("in use by a claim of another namespace."),
        "{event}"
    );
    // Two schedulers gave the same device away.
    fixture.claim("a", allocated("n0", &["p"]));
    let mut all = String::new();
    for _ in 0..3 {
        let outcome = fixture.run();
        all += &format!(
            "{:?}",
            outcome
                .0
                .iter()
                .filter_map(|a| match a {
                    Action::Reject(r) => Some((&r.message, &r.explanation)),
                    _ => None,
                })
                .collect::<Vec<_>>()
        );
    }
    assert!(!all.contains("secret") && !all.contains("team-b"), "{all}");
}
