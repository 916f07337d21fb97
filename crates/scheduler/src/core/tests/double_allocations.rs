//! Devices that another scheduler gave away.

use super::*;

/// A pod whose claim is allocated and written; returned with the server's answer.
fn written(fixture: &mut Fixture) -> ResourceClaim {
    fixture.claim("a", json!({}));
    fixture.pod("p", &["a"]);
    let outcome = fixture.run();
    let job = outcome.bound().expect("bound");
    assert!(job.wait && !job.announce, "{job:?}");
    let node = job.node.to_string();
    let claim: Box<ResourceClaim> = fixture.object(json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "uid-a"},
        "spec": {},
        "status": allocated(&node, &["p"]),
    }));
    let (pod, in_flight) = (Uid::from("uid-p"), Uid::from("uid-a"));
    let answer = Arc::new((*claim).clone());
    fixture.handle(Input::ClaimWritten {
        pod: pod.clone(),
        in_flight,
        claim: answer,
    });
    fixture.handle(Input::ClaimsReady(pod));
    *claim
}

fn binds(outcome: &Outcome) -> bool {
    outcome
        .0
        .iter()
        .any(|a| matches!(a, Action::BindPod { .. }))
}

#[test]
fn a_pod_is_bound_when_the_watch_has_shown_its_claim() {
    let mut fixture = Fixture::new("");
    let claim = written(&mut fixture);
    assert!(!binds(&fixture.run()));
    fixture.handle(Input::Claim(Observed::Applied(Box::new(claim))));
    assert!(binds(&fixture.run()));
}

#[test]
fn a_pod_is_not_bound_with_a_device_that_another_claim_had_before() {
    let mut fixture = Fixture::new("");
    let claim = written(&mut fixture);
    // Another scheduler's write, which came before ours.
    fixture.claim("b", allocated("n0", &["q"]));
    let job = fixture.run();
    assert!(!binds(&job));
    fixture.handle(Input::Claim(Observed::Applied(Box::new(claim))));
    let outcome = fixture.run();
    let taken = outcome.deallocated().and_then(|c| c.metadata.name.clone());
    assert_eq!(taken.as_deref(), Some("a"));
    let text = "running PreBind plugin \"DynamicResources\": claim ns/a was allocated later: device d/n0/d0 is also allocated to ns/b";
    assert_eq!(outcome.message(), text);
    assert!(!binds(&outcome));
}

#[test]
fn a_pod_that_is_on_a_node_keeps_its_claims_when_our_binding_fails() {
    let mut fixture = Fixture::new("");
    let claim = written(&mut fixture);
    // A binding that a predecessor sent arrives, and is seen before our own binding fails.
    fixture.any_pod("p", &["a"], json!({"nodeName": "n0"}));
    fixture.handle(Input::Claim(Observed::Applied(Box::new(claim))));
    fixture.run();
    fixture.handle(Input::Bound {
        pod: "uid-p".into(),
        outcome: Err(BindError::new("late".to_owned())),
    });
    let outcome = fixture.run();
    let takes = |a: &Action| matches!(a, Action::Unreserve { .. } | Action::Deallocate(_));
    assert!(!outcome.0.iter().any(takes), "{:?}", outcome.0);
}

#[test]
fn a_claim_that_was_second_serves_no_more_pods_unless_one_runs() {
    let mut fixture = Fixture::new("");
    fixture.claim("b", allocated("n0", &["q"]));
    fixture.claim("a", allocated("n0", &["p"]));
    fixture.pod("p", &["a"]);
    let outcome = fixture.run();
    let taken = outcome.deallocated().and_then(|c| c.metadata.name.clone());
    assert_eq!(taken.as_deref(), Some("a"), "{}", outcome.message());
    // It is too late for that where a pod runs.
    let mut fixture = Fixture::new("");
    fixture.claim("b", allocated("n0", &["q"]));
    fixture.claim("a", allocated("n0", &["p", "r"]));
    fixture.any_pod("r", &["a"], json!({"nodeName": "n0"}));
    fixture.pod("p", &["a"]);
    assert_eq!(fixture.run().node(), Some("n0"));
}

#[test]
fn a_claim_of_a_predecessor_gets_a_new_version() {
    let mut fixture = Fixture::new("");
    let claim = fixture.object(json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "uid-a"},
        "spec": {},
        "status": allocated("n0", &["p"]),
    }));
    let version = "200".to_owned();
    let items = vec![*claim];
    fixture.handle(Input::Claim(Observed::Listed { items, version }));
    fixture.pod("p", &["a"]);
    let outcome = fixture.run();
    let tasks = &outcome.bound().expect("bound").claims;
    assert!(tasks.len() == 1 && tasks[0].fence, "{tasks:?}");
    // A later allocation does not conflict with this one.
    let mut fixture = Fixture::new("");
    fixture.handle(Input::Claim(Observed::Listed {
        items: Vec::new(),
        version: "1".to_owned(),
    }));
    fixture.claim("a", allocated("n0", &["p"]));
    fixture.pod("p", &["a"]);
    assert!(fixture.run().bound().expect("bound").claims.is_empty());
}

/// The pods that waited for it waited for five minutes.
#[test]
fn a_claim_that_was_second_can_be_shared_as_soon_as_one_of_its_pods_runs() {
    let mut fixture = Fixture::new("");
    fixture.claim("b", allocated("n0", &["q"]));
    fixture.claim("a", allocated("n0", &["r"]));
    fixture.pod("p", &["a"]);
    // Reserved for another pod, so that it cannot be released.
    let outcome = fixture.run();
    assert_eq!(outcome.node(), None, "{}", outcome.message());
    fixture.any_pod("r", &["a"], json!({"nodeName": "n0"}));
    let outcome = fixture.run();
    assert_eq!(outcome.node(), Some("n0"), "{}", outcome.message());
}

#[test]
fn a_pod_is_not_bound_with_a_claim_that_is_not_reserved_for_it() {
    let mut fixture = Fixture::new("");
    let claim = written(&mut fixture);
    // Another component removed the reservation before the watch showed it.
    let mut lost: Box<ResourceClaim> = fixture.object(json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "uid-a"},
        "spec": {},
        "status": allocated("n0", &[]),
    }));
    lost.status = claim.status.map(|mut status| {
        status.reserved_for = None;
        status
    });
    fixture.handle(Input::Claim(Observed::Applied(lost)));
    let outcome = fixture.run();
    assert!(!binds(&outcome));
    let text = "running PreBind plugin \"DynamicResources\": claim ns/a lost the reservation for the pod in the meantime";
    assert_eq!(outcome.message(), text);
}
