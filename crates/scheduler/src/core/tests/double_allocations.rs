//! Devices that another scheduler gave away.

use super::*;

/// A pod whose claim is allocated and written; returned with the server's answer.
fn written(world: &mut World) -> ResourceClaim {
    world.claim("a", json!({}));
    world.pod("p", &["a"]);
    let outcome = world.run();
    let job = outcome.bound().expect("bound");
    assert!(job.wait && !job.announce, "{job:?}");
    let node = job.node.to_string();
    let claim: Box<ResourceClaim> = world.object(json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "uid-a"},
        "spec": {},
        "status": allocated(&node, &["p"]),
    }));
    let (pod, in_flight) = (Uid::from("uid-p"), Uid::from("uid-a"));
    let answer = Arc::new((*claim).clone());
    world.handle(Input::ClaimWritten {
        pod: pod.clone(),
        in_flight,
        claim: answer,
    });
    world.handle(Input::ClaimsReady(pod));
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
    let mut world = World::new("");
    let claim = written(&mut world);
    assert!(!binds(&world.run()));
    world.handle(Input::Claim(Observed::Applied(Box::new(claim))));
    assert!(binds(&world.run()));
}

#[test]
fn a_pod_is_not_bound_with_a_device_that_another_claim_had_before() {
    let mut world = World::new("");
    let claim = written(&mut world);
    // Another scheduler's write, which came before ours.
    world.claim("b", allocated("n0", &["q"]));
    let job = world.run();
    assert!(!binds(&job));
    world.handle(Input::Claim(Observed::Applied(Box::new(claim))));
    let outcome = world.run();
    let taken = outcome.deallocated().and_then(|c| c.metadata.name.clone());
    assert_eq!(taken.as_deref(), Some("a"));
    let text = "running PreBind plugin \"DynamicResources\": claim ns/a was allocated later: device d/n0/d0 is also allocated to ns/b";
    assert_eq!(outcome.message(), text);
    assert!(!binds(&outcome));
}

#[test]
fn a_pod_that_is_on_a_node_keeps_its_claims_when_our_binding_fails() {
    let mut world = World::new("");
    let claim = written(&mut world);
    // A binding that a predecessor sent arrives, and is seen before our own binding fails.
    world.any_pod("p", &["a"], json!({"nodeName": "n0"}));
    world.handle(Input::Claim(Observed::Applied(Box::new(claim))));
    world.run();
    world.handle(Input::Bound {
        pod: "uid-p".into(),
        outcome: Err(BindError::new("late".to_owned())),
    });
    let outcome = world.run();
    let takes = |a: &Action| matches!(a, Action::Unreserve { .. } | Action::Deallocate(_));
    assert!(!outcome.0.iter().any(takes), "{:?}", outcome.0);
}

#[test]
fn a_claim_that_was_second_serves_no_more_pods_unless_one_runs() {
    let mut world = World::new("");
    world.claim("b", allocated("n0", &["q"]));
    world.claim("a", allocated("n0", &["p"]));
    world.pod("p", &["a"]);
    let outcome = world.run();
    let taken = outcome.deallocated().and_then(|c| c.metadata.name.clone());
    assert_eq!(taken.as_deref(), Some("a"), "{}", outcome.message());
    // It is too late for that where a pod runs.
    let mut world = World::new("");
    world.claim("b", allocated("n0", &["q"]));
    world.claim("a", allocated("n0", &["p", "r"]));
    world.any_pod("r", &["a"], json!({"nodeName": "n0"}));
    world.pod("p", &["a"]);
    assert_eq!(world.run().node(), Some("n0"));
}

#[test]
fn a_claim_of_a_predecessor_gets_a_new_version() {
    let mut world = World::new("");
    let claim = world.object(json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "uid-a"},
        "spec": {},
        "status": allocated("n0", &["p"]),
    }));
    let version = "200".to_owned();
    let items = vec![*claim];
    world.handle(Input::Claim(Observed::Listed { items, version }));
    world.pod("p", &["a"]);
    let outcome = world.run();
    let tasks = &outcome.bound().expect("bound").claims;
    assert!(tasks.len() == 1 && tasks[0].fence, "{tasks:?}");
    // A later allocation does not conflict with this one.
    let mut world = World::new("");
    world.handle(Input::Claim(Observed::Listed {
        items: Vec::new(),
        version: "1".to_owned(),
    }));
    world.claim("a", allocated("n0", &["p"]));
    world.pod("p", &["a"]);
    assert!(world.run().bound().expect("bound").claims.is_empty());
}

/// The pods that waited for it waited for five minutes.
#[test]
fn a_claim_that_was_second_can_be_shared_as_soon_as_one_of_its_pods_runs() {
    let mut world = World::new("");
    world.claim("b", allocated("n0", &["q"]));
    world.claim("a", allocated("n0", &["r"]));
    world.pod("p", &["a"]);
    // Reserved for another pod, so that it cannot be released.
    let outcome = world.run();
    assert_eq!(outcome.node(), None, "{}", outcome.message());
    world.any_pod("r", &["a"], json!({"nodeName": "n0"}));
    let outcome = world.run();
    assert_eq!(outcome.node(), Some("n0"), "{}", outcome.message());
}

#[test]
fn a_pod_is_not_bound_with_a_claim_that_is_not_reserved_for_it() {
    let mut world = World::new("");
    let claim = written(&mut world);
    // Another component removed the reservation before the watch showed it.
    let mut lost: Box<ResourceClaim> = world.object(json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "uid-a"},
        "spec": {},
        "status": allocated("n0", &[]),
    }));
    lost.status = claim.status.map(|mut status| {
        status.reserved_for = None;
        status
    });
    world.handle(Input::Claim(Observed::Applied(lost)));
    let outcome = world.run();
    assert!(!binds(&outcome));
    let text = "running PreBind plugin \"DynamicResources\": claim ns/a lost the reservation for the pod in the meantime";
    assert_eq!(outcome.message(), text);
}
