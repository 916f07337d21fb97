//! Pods in PreBind whose binding cycle is canceled, because they are preempted or deleted.

use super::*;
use crate::actions::BindJob;

/// A pod whose claim is being written. Only n0 takes pods.
fn writing() -> (Fixture, BindJob) {
    let mut fixture = Fixture::new("");
    fixture.node("n1", json!({"unschedulable": true}));
    fixture.claim("a", json!({}));
    fixture.pod("p", &["a"]);
    let job = fixture.run().bound().expect("a place").clone();
    (fixture, job)
}

impl Fixture {
    /// The claim of the pod is written. Returns the claim.
    fn claim_is_written(&mut self) -> Box<ResourceClaim> {
        let claim: Box<ResourceClaim> = self.object(json!({
            "metadata": {"name": "a", "namespace": "ns", "uid": "uid-a"},
            "spec": {},
            "status": allocated("n0", &["p"]),
        }));
        self.handle(Input::ClaimWritten {
            pod: "uid-p".into(),
            in_flight: "uid-a".into(),
            claim: Arc::new((*claim).clone()),
        });
        self.handle(Input::ClaimsReady("uid-p".into()));
        claim
    }
}

impl Outcome {
    fn binds(&self) -> bool {
        let binds = |a: &Action| matches!(a, Action::BindPod { .. });
        self.0.iter().any(binds)
    }

    fn unreserves(&self) -> bool {
        let own = |a: &Action| matches!(a, Action::Unreserve { pod, .. } if **pod == *"uid-p");
        self.0.iter().any(own)
    }
}

const CANCELED: &str =
    "running PreBind plugin \"DynamicResources\": preempted by DefaultPreemption";

#[test]
fn regression_a_victim_whose_claim_is_being_written_is_not_deleted() {
    let (mut fixture, job) = writing();
    fixture.plain("q", 4, 10, None);
    let outcome = fixture.run();
    assert!(outcome.preempted().is_empty());
    let told = |a: &Action| matches!(a, Action::RecordPreempted { victim, .. } if *victim.key.name == *"p");
    assert!(outcome.0.iter().any(told));
    assert!(job.cancel.is_cancelled());
    // There is room at once, after the backoff. The device is in use as long as it may be allocated.
    let time = fixture.time();
    assert!(fixture.core.schedule_one(time));
    assert_eq!(fixture.run().node(), Some("n0"));
    assert_eq!(fixture.core.claims.in_flight_len(), 1);
    // The write that had begun was carried out. The pod is tried again, with the claim as it is.
    fixture.claim_is_written();
    let outcome = Outcome(fixture.core.take_actions());
    assert_eq!(outcome.message(), CANCELED);
    assert!(outcome.unreserves() && !outcome.binds());
    assert_eq!(fixture.core.claims.in_flight_len(), 0);
    assert_eq!(fixture.core.queue_counts().backoff, 1);
}

/// The pod's condition has the reason of the cancellation, not that a write was not begun.
#[test]
fn a_victim_whose_writes_were_not_begun_says_that_it_was_preempted() {
    let (mut fixture, job) = writing();
    fixture.plain("q", 4, 10, None);
    fixture.run();
    fixture.handle(Input::Bound {
        pod: job.pod.uid.clone(),
        outcome: Err(BindError::canceled()),
    });
    let outcome = Outcome(fixture.core.take_actions());
    assert_eq!(outcome.message(), CANCELED);
    assert!(!outcome.unreserves());
    assert_eq!(fixture.core.claims.in_flight_len(), 0);
}

/// It may be bound already.
#[test]
fn a_victim_that_is_being_bound_is_deleted() {
    let (mut fixture, job) = writing();
    let claim = fixture.claim_is_written();
    fixture.handle(Input::Claim(Observed::Applied(claim)));
    assert!(fixture.run().binds());
    fixture.plain("q", 4, 10, None);
    let preempted = fixture.run().preempted();
    assert_eq!(preempted, [("q".to_owned(), "p".to_owned())]);
    assert!(!job.cancel.is_cancelled());
}

/// Canceling its binding here would make no room.
#[test]
fn regression_a_victim_that_another_scheduler_has_bound_is_deleted() {
    let (mut fixture, job) = writing();
    fixture.any_pod("p", &["a"], json!({"nodeName": "n0"}));
    fixture.plain("q", 4, 10, None);
    let preempted = fixture.run().preempted();
    assert_eq!(preempted, [("q".to_owned(), "p".to_owned())]);
    assert!(!job.cancel.is_cancelled());
}

/// It would allocate the same devices again, which a third pod may have by then.
#[test]
fn regression_a_pod_does_not_allocate_what_a_deleted_pod_with_the_same_claim_releases() {
    let (mut fixture, _) = writing();
    fixture.pod("q", &["a"]);
    let other = fixture.run().bound().expect("a place").clone();
    assert!(other.claims[0].allocation.is_some());
    fixture.gone("p");
    fixture.claim_is_written();
    let outcome = Outcome(fixture.core.take_actions());
    assert!(outcome.deallocated().is_some());
    assert!(other.cancel.is_cancelled());
    // It is tried again.
    fixture.handle(Input::Bound {
        pod: other.pod.uid.clone(),
        outcome: Err(BindError::canceled()),
    });
    let outcome = Outcome(fixture.core.take_actions());
    let text =
        "running PreBind plugin \"DynamicResources\": claim ns/a got deallocated in the meantime";
    assert_eq!(outcome.message(), text);
}

#[test]
fn nothing_else_is_written_for_a_pod_that_is_deleted_while_its_claim_is_written() {
    for is_gone in [true, false] {
        let (mut fixture, job) = writing();
        match is_gone {
            true => fixture.gone("p"),
            // A finalizer keeps it.
            false => fixture.leaves("p"),
        }
        assert!(job.cancel.is_cancelled());
        fixture.plain("q", 4, 0, None);
        assert_eq!(fixture.run().node(), Some("n0"), "gone: {is_gone}");
        fixture.claim_is_written();
        let outcome = Outcome(fixture.core.take_actions());
        assert!(!outcome.binds());
        assert_eq!(outcome.message(), "");
        // Only a pod that is gone needs the allocation no more.
        assert_eq!(outcome.deallocated().is_some(), is_gone);
        assert_eq!(outcome.unreserves(), !is_gone);
    }
}

/// Devices that are not ready yet do not keep the claim of a pod that is gone allocated.
#[test]
fn a_pod_that_is_deleted_while_its_devices_get_ready_releases_its_claim() {
    let mut fixture = Fixture::new("");
    let mut status = broken(&["p"]);
    status["devices"] = Value::Null;
    fixture.claim("a", status);
    fixture.pod("p", &["a"]);
    let job = fixture.run().bound().expect("a place").clone();
    fixture.handle(Input::ClaimsReady(job.pod.uid.clone()));
    fixture.gone("p");
    let outcome = fixture.run();
    assert!(outcome.deallocated().is_some());
}

/// The node resources of devices are written into the pod's status before the core decides that it is bound.
#[test]
fn a_pod_with_node_resources_of_devices_is_in_pre_bind() {
    let mut fixture = node_allocatable_fixture(NODE_ALLOCATABLE);
    fixture.claim("a", allocated("n0", &["p"]));
    fixture.pod("p", &["a"]);
    let job = fixture.run().bound().expect("a place").clone();
    assert!(job.claims.is_empty() && job.wait);
    fixture.handle(Input::ClaimsReady(job.pod.uid.clone()));
    assert!(fixture.run().binds());
}

/// The clock of a scheduler that allocated the claim may be ahead: conditions are late after the timeout at most.
#[test]
fn regression_a_timestamp_in_the_future_makes_no_binding_wait_longer() {
    let mut fixture = Fixture::new("");
    let mut status = broken(&["p"]);
    status["devices"] = Value::Null;
    status["allocation"]["allocationTimestamp"] = json!("1970-01-02T00:00:00Z");
    fixture.claim("a", status);
    fixture.pod("p", &["a"]);
    let job = fixture.run().bound().expect("a place").clone();
    fixture.handle(Input::ClaimsReady(job.pod.uid.clone()));
    let timeout = fixture.core.config.profiles[0]
        .dynamic_resources
        .binding_timeout;
    let time = fixture.time();
    let deadline = fixture.core.next_deadline(time).expect("it waits");
    assert_eq!(deadline - time.now, timeout);
}
