//! What attempts left that came to nothing. Found by simulation.

use super::*;

/// A fixture in which pods can ask for the devices by an extended resource, and a pod that does.
fn with_resource() -> Fixture {
    let mut fixture = Fixture::new("");
    let pod = fixture.extended_resource();
    fixture.any_pod("p", &[], pod);
    fixture
}

/// The claim that was made for it.
fn extended(fixture: &mut Fixture, name: &str, status: Value) -> Box<ResourceClaim> {
    let owner =
        json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": true});
    let annotations = json!({"resource.kubernetes.io/extended-resource-claim": "true"});
    fixture.object(json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": format!("uid-{name}"),
            "annotations": annotations, "ownerReferences": [owner],
        },
        "spec": {},
        "status": status,
    }))
}

fn deleted(outcome: &Outcome) -> Vec<&str> {
    let created = outcome.0.iter().filter_map(|a| match a {
        Action::DeleteExtendedResourceClaim(claim) => claim.metadata.name.as_deref(),
        _ => None,
    });
    created.collect()
}

#[test]
fn a_pod_is_tried_again_when_its_extended_resource_claim_is_deleted() {
    let mut fixture = with_resource();
    // It never got a device, so that its end frees none.
    let claim = extended(&mut fixture, "old", json!({}));
    fixture.handle(Input::Claim(Observed::Applied(claim.clone())));
    let outcome = fixture.run();
    assert_eq!(deleted(&outcome), ["old"], "{}", outcome.message());
    fixture.handle(Input::Claim(Observed::Deleted(claim)));
    assert!(fixture.run().bound().is_some());
}

#[test]
fn a_claim_whose_creation_was_not_answered_goes_before_its_pod_is_bound() {
    let mut fixture = with_resource();
    let job = fixture.run();
    let job = job.bound().expect("bound");
    let in_flight = job.extended.as_ref().expect("a claim").uid.clone();
    let lost = extended(&mut fixture, "lost", json!({}));
    let claim = extended(&mut fixture, "new", allocated(&job.node, &["p"]));
    let pod = job.pod.uid.clone();
    fixture.handle(Input::ClaimWritten {
        pod: pod.clone(),
        in_flight,
        claim: Arc::new((*claim).clone()),
    });
    fixture.handle(Input::ClaimsReady(pod));
    fixture.handle(Input::Claim(Observed::Applied(lost)));
    assert!(deleted(&fixture.run()).is_empty());
    fixture.handle(Input::Claim(Observed::Applied(claim)));
    let outcome = fixture.run();
    let binds = |a: &Action| matches!(a, Action::BindPod { .. });
    assert!(outcome.0.iter().any(binds));
    assert_eq!(deleted(&outcome), ["lost"]);
}

/// All devices but one are others', and that is on n0.
fn with_one_device_left() -> Fixture {
    let mut fixture = Fixture::new("");
    for (name, node, device) in [("x", "n0", "d1"), ("y", "n1", "d0"), ("z", "n1", "d1")] {
        let mut status = allocated(node, &["other"]);
        status["allocation"]["devices"]["results"][0]["device"] = device.into();
        fixture.claim(name, status);
    }
    fixture
}

/// Otherwise two pods that each hold what the other one needs deadlock.
#[test]
fn a_pod_that_fits_nowhere_holds_nothing() {
    let mut fixture = with_one_device_left();
    // A scheduler that died got no further.
    fixture.claim("a", allocated("n0", &["p"]));
    fixture.claim("b", json!({}));
    fixture.pod("p", &["a", "b"]);
    let outcome = fixture.run();
    let taken = outcome.deallocated().and_then(|c| c.metadata.name.clone());
    assert_eq!(taken.as_deref(), Some("a"), "{}", outcome.message());
    assert!(outcome.message().contains("still not schedulable"));
}

/// Whether preemption is needed as well is decided once the claim is free.
#[test]
fn a_claim_on_another_node_is_deallocated_and_no_pod_preempted() {
    let mut fixture = Fixture::new("");
    fixture.claim("a", allocated("gone", &[]));
    fixture.pod("p", &["a"]);
    let outcome = fixture.run();
    assert!(outcome.deallocated().is_some());
    assert_eq!(
        outcome.message(),
        "0/2 nodes are available: 2 resourceclaim not available on the node. deallocation of ResourceClaim completed, \
         preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    );
}

/// A scheduler that is restarted after a failed binding does not know which pod the allocation was for.
#[test]
fn a_pod_that_fits_nowhere_releases_its_own_claims() {
    let gives_back = |owner: Value| {
        let mut fixture = with_one_device_left();
        fixture.claim("b", json!({}));
        fixture.pod("p", &["a", "b"]);
        let claim = fixture.object(json!({
            "metadata": {"name": "a", "namespace": "ns", "uid": "uid-a", "ownerReferences": owner},
            "spec": {},
            "status": allocated("n0", &[]),
        }));
        fixture.handle(Input::Claim(Observed::Applied(claim)));
        fixture.run().deallocated().is_some()
    };
    let owner =
        json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": true});
    assert!(gives_back(json!([owner])));
    assert!(!gives_back(json!([])));
}

#[test]
fn claims_of_a_failed_binding_are_released_when_the_pod_fits_nowhere() {
    let gives_back = |status: Value| {
        let mut fixture = Fixture::new("");
        fixture.claim("a", status);
        fixture.pod("p", &["a"]);
        let outcome = fixture.run();
        let job = outcome.bound().expect("bound");
        let (node, pod) = (job.node.clone(), job.pod.uid.clone());
        let mut written = |pods: &[&str]| {
            let claim = fixture.object::<ResourceClaim>(json!({
                "metadata": {"name": "a", "namespace": "ns", "uid": "uid-a"},
                "spec": {},
                "status": allocated(&node, pods),
            }));
            Arc::new(*claim)
        };
        let (reserved, left) = (written(&["p"]), written(&[]));
        fixture.handle(Input::ClaimWritten {
            pod: pod.clone(),
            in_flight: "uid-a".into(),
            claim: reserved,
        });
        let outcome = Err(BindError::new("refused".to_owned()));
        let failed = pod.clone();
        fixture.handle(Input::Bound { pod, outcome });
        let actions = fixture.core.take_actions();
        let leaves = |a: &Action| matches!(a, Action::Unreserve { .. });
        assert!(actions.iter().any(leaves));
        fixture.handle(Input::Released {
            key: Key::new("ns", "a"),
            uid: "uid-a".into(),
            pod: Some(failed),
            claim: Some(left),
        });
        for node in ["n0", "n1"] {
            fixture.node(node, json!({"unschedulable": true}));
        }
        let time = fixture.time();
        assert!(fixture.core.schedule_one(time));
        Outcome(fixture.core.take_actions()).deallocated().is_some()
    };
    assert!(gives_back(json!({})));
    // It was there before, and stays.
    assert!(!gives_back(allocated("n0", &[])));
}

/// Seed 837 of the simulation: a claim was deleted after the binding failed, and what the pod had got with another one
/// stayed with it.
#[test]
fn a_pod_that_lacks_a_claim_keeps_nothing_from_others() {
    let owner =
        json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": true});
    let check = |owner: Value, users: &[&str], expected: &str| {
        let mut fixture = Fixture::new("");
        let claim = fixture.object(json!({
            "metadata": {"name": "a", "namespace": "ns", "uid": "uid-a", "ownerReferences": owner},
            "spec": {},
            "status": allocated("n0", users),
        }));
        fixture.handle(Input::Claim(Observed::Applied(claim)));
        fixture.pod("p", &["a", "missing"]);
        let mut actions = || {
            let actions = fixture.core.take_actions();
            let pod = actions.iter().find_map(|a| match a {
                Action::Deallocate(_) => Some((None, "deallocate")),
                Action::Unreserve { pod, .. } => Some((Some(pod.clone()), "unreserve")),
                _ => None,
            });
            // That it fails does not bring it back.
            if let Some((pod, _)) = &pod {
                let (key, uid) = (Key::new("ns", "a"), "uid-a".into());
                let (pod, claim) = (pod.clone(), None);
                fixture.handle(Input::Released {
                    key,
                    uid,
                    pod,
                    claim,
                });
            }
            pod.map_or("nothing", |(_, what)| what)
        };
        assert_eq!(actions(), expected, "{owner} {users:?}");
        assert_eq!(actions(), "nothing", "{owner} {users:?}");
    };
    check(json!([owner]), &[], "deallocate");
    check(json!([]), &["p"], "deallocate");
    check(json!([]), &["p", "q"], "unreserve");
    check(json!([]), &["q"], "nothing");
    // The claim was allocated by hand.
    check(json!([]), &[], "nothing");
}

/// A binding that a dead scheduler sent arrived after that, and the pod ran without its devices.
#[test]
fn pods_are_fenced_before_claims_of_an_earlier_scheduler_are_released() {
    let fences = |needs_fencing: bool| {
        let mut fixture = Fixture::new("");
        fixture.node("n0", json!({"unschedulable": true}));
        fixture.claim("a", allocated("n0", &["p"]));
        let pod = json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "uid-p"},
            "spec": {"containers": [], "resourceClaims": [{"name": "a", "resourceClaimName": "a"}]},
        });
        let info = PodInfo::observed(*fixture.object::<Pod>(pod));
        let items = match needs_fencing {
            true => vec![Arc::new(info.clone())],
            false => Vec::new(),
        };
        let version = "1".to_owned();
        fixture.handle(Input::Pod(Observed::Listed { items, version }));
        fixture.handle(Input::Pod(Observed::Applied(Box::new(Arc::new(info)))));
        let outcome = fixture.run();
        assert_eq!(outcome.node(), None);
        let fenced = outcome.0.iter().find_map(|a| match a {
            Action::Fenced { pods, then } => Some((pods.len(), &**then)),
            _ => None,
        });
        let direct = outcome.deallocated().is_some();
        (matches!(fenced, Some((1, Action::Deallocate(_)))), direct)
    };
    assert_eq!(fences(true), (true, false));
    assert_eq!(fences(false), (false, true));
}

/// The claim controller deallocates a claim when it removes the last consumer.
#[test]
fn devices_that_were_shared_with_a_deleted_pod_are_freed() {
    let mut fixture = Fixture::new("");
    fixture.claim("a", allocated("n0", &["q"]));
    fixture.pod("p", &["a"]);
    let job = fixture.run();
    let pod = job.bound().expect("bound").pod.clone();
    // The other pod leaves while the reservation for this one is written.
    fixture.claim("a", allocated("n0", &["p"]));
    let uid = pod.uid.clone();
    fixture.handle(Input::Pod(Observed::Deleted(Box::new(pod))));
    let outcome = Err(BindError::new("gone".to_owned()));
    fixture.handle(Input::Bound { pod: uid, outcome });
    assert!(fixture.run().deallocated().is_some());
}
