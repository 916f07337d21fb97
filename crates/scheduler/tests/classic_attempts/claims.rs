//! Claims that stand in the way, are in use, or are going away.

use super::*;

/// A pod with one claim is rejected with this reason.
fn check_rejection(reason: &str, claim: Value, class: Value) {
    let mut fixture = Fixture::usual();
    if !class.is_null() {
        fixture.class(class);
    }
    fixture.claim("c", claim);
    fixture.pod("p", &["c"]);
    let outcome = fixture.run();
    assert!(
        outcome.message().contains(reason),
        "{reason}: {}",
        outcome.message()
    );
    assert!(outcome.bound().is_none() && outcome.published().is_none());
}

#[test]
fn pods_are_rejected_for_a_reason() {
    let other = json!([{"resource": "pods", "name": "o", "uid": "uid-o"}]);
    check_rejection(
        "resourceclaim must be reallocated",
        allocated_on("n0", json!({"deallocationRequested": true})),
        Value::Null,
    );
    check_rejection(
        "resourceclaim in use",
        allocated_on("n0", json!({"reservedFor": other})),
        Value::Null,
    );
    check_rejection(
        "resource class missing does not exist",
        json!({"spec": {"resourceClassName": "missing"}}),
        Value::Null,
    );
    check_rejection(
        "unallocated immediate resourceclaim",
        json!({"spec": {"allocationMode": "Immediate"}}),
        Value::Null,
    );
    let term = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n7"]}]});
    check_rejection(
        "2 excluded by resource class node filter",
        json!({}),
        json!({"metadata": {"name": "k"}, "driverName": "d", "suitableNodes": {"nodeSelectorTerms": [term]}}),
    );
}

#[test]
fn a_pod_is_held_back_until_its_claim_exists_and_is_its_own() {
    let mut fixture = Fixture::usual();
    let entry = json!([{"name": "r", "resourceClaimTemplateName": "t"}]);
    fixture.any_pod("p", json!({"resourceClaims": entry}));
    assert!(fixture.run().0.is_empty());
    let mut early = Fixture::new(Served {
        deterministic_names: true,
        ..SERVED
    });
    early.node("n0");
    early.class(json!({"metadata": {"name": "k"}, "driverName": "d"}));
    early.any_pod("p", json!({"resourceClaims": entry}));
    early.claim("p-r", json!({}));
    assert!(early.run().0.is_empty(), "the claim is somebody else's");
    let owner =
        json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": true});
    early.claim("p-r", json!({"metadata": {"ownerReferences": [owner]}}));
    assert_eq!(early.run().published(), Some(spec("n0", &["n0"])));
}

#[test]
fn an_exclusive_claim_is_reserved_for_one_pod() {
    let mut fixture = Fixture::usual();
    fixture.claim("c", allocated_on("n0", json!({})));
    fixture.pod("p", &["c"]);
    fixture.pod("q", &["c"]);
    let outcome = fixture.run();
    let bindings = outcome
        .0
        .iter()
        .filter(|a| matches!(a, CoreAction::Bind(_)));
    assert_eq!(bindings.count(), 1);
    assert!(outcome.message().contains("resourceclaim in use"));
    // When the first binding fails, the other one gets it.
    let error = BindError::new("no".to_owned());
    fixture.handle(CoreInput::Bound {
        pod: "uid-p".into(),
        outcome: Err(error),
    });
    let next = fixture.run();
    let bound = next.bound().expect("a binding");
    assert!(*bound.pod.uid == *"uid-q" || *bound.pod.uid == *"uid-p");
}

#[test]
fn a_shareable_claim_has_as_many_users_as_the_api_allows() {
    let mut fixture = Fixture::usual();
    let shareable = json!({"allocation": {"shareable": true}});
    let users = |n: usize| -> Vec<Value> {
        (0..n)
            .map(|i| json!({"resource": "pods", "name": "o", "uid": format!("uid-o{i}")}))
            .collect()
    };
    let mut status = shareable.clone();
    status["reservedFor"] = json!(users(31));
    fixture.claim("c", allocated_on("n0", status.clone()));
    fixture.pod("p", &["c"]);
    fixture.pod("q", &["c"]);
    let outcome = fixture.run();
    assert!(outcome.bound().is_some());
    assert!(outcome.message().contains("resourceclaim in use"));
}

#[test]
fn a_claim_in_the_way_is_deallocated_after_the_node_was_given_up() {
    let mut fixture = Fixture::usual();
    fixture.claim("a", allocated_on("n0", json!({})));
    fixture.claim("b", allocated_on("n1", json!({})));
    fixture.scheduling("p", &spec("n1", &["n0", "n1"]), json!([]));
    fixture.pod("p", &["a", "b"]);
    let outcome = fixture.run();
    assert!(
        outcome
            .message()
            .contains("deallocation of ResourceClaim completed")
    );
    let (claim, publish) = outcome.deallocated().expect("a deallocation");
    assert!(claim == "a" || claim == "b");
    assert_eq!(publish, Some(spec("", &["n0", "n1"])));
}

#[test]
fn nothing_counts_on_a_claim_that_is_being_deallocated() {
    let mut fixture = Fixture::usual();
    fixture.claim("a", allocated_on("n0", json!({})));
    fixture.claim("b", allocated_on("n1", json!({})));
    fixture.pod("p", &["a", "b"]);
    let (claim, _) = fixture.run().deallocated().expect("a deallocation");
    // The other claim moves to the same node before the write is done.
    let (node, other) = if claim == "a" {
        ("n0", "b")
    } else {
        ("n1", "a")
    };
    fixture.claim(other, allocated_on(node, json!({})));
    let waits = fixture.run();
    assert!(waits.bound().is_none());
    assert!(
        waits
            .message()
            .contains("resourceclaim must be reallocated")
    );
    // It was not written: the claim is as it was.
    fixture.classic(Input::Released {
        key: Key::new("ns", &claim),
        uid: format!("uid-{claim}").into(),
        pod: None,
        claim: None,
    });
    assert_eq!(fixture.run().bound().map(|b| &*b.node), Some(node));
}

#[test]
fn claims_of_others_and_immediate_ones_stay() {
    for status in [
        json!({"status": {"reservedFor": [{"resource": "pods", "name": "o", "uid": "uid-o"}], "allocation": {"shareable": true}}}),
        json!({"spec": {"allocationMode": "Immediate"}}),
    ] {
        let mut fixture = Fixture::usual();
        for (name, node) in [("a", "n0"), ("b", "n1")] {
            let mut claim = allocated_on(node, json!({}));
            merge(&mut claim, &status);
            fixture.claim(name, claim);
        }
        fixture.pod("p", &["a", "b"]);
        let outcome = fixture.run();
        assert!(outcome.deallocated().is_none());
        assert!(outcome.message().contains("still not schedulable"));
    }
}

#[test]
fn no_pod_relies_on_a_reservation_that_is_being_removed() {
    let mut fixture = Fixture::usual();
    fixture.claim("a", allocated_on("n0", json!({})));
    fixture.pod("p", &["a"]);
    assert!(fixture.run().bound().is_some());
    // The reservation was written, the binding not.
    let reserved = json!([{"resource": "pods", "name": "p", "uid": "uid-p"}]);
    fixture.claim("a", allocated_on("n0", json!({"reservedFor": reserved})));
    fixture.handle(CoreInput::Bound {
        pod: "uid-p".into(),
        outcome: Err(BindError::new("lost".to_owned())),
    });
    assert!(fixture.core.take_actions().iter().any(|action| matches!(
        write(action),
        Some(Action::Unreserve { claim, .. }) if claim.metadata.name.as_deref() == Some("a")
    )));
    let waits = fixture.run();
    assert!(waits.bound().is_none());
    assert!(
        waits
            .message()
            .contains("resourceclaim must be reallocated"),
        "{}",
        waits.message()
    );
    fixture.classic(Input::Released {
        key: Key::new("ns", "a"),
        uid: "uid-a".into(),
        pod: Some("uid-p".into()),
        claim: None,
    });
    assert!(fixture.run().bound().is_some());
}

/// Found by simulation (seed 247): a claim that was taken back and allocated on another node while the reservation for a pod
/// was on its way got the reservation nevertheless.
#[test]
fn a_claim_that_moved_to_another_node_is_not_reserved() {
    let claim = |status: Value| -> ResourceClaim {
        let metadata = json!({"name": "c", "namespace": "ns", "uid": "uid-c"});
        let spec = json!({"resourceClassName": "k"});
        let claim = json!({"metadata": metadata, "spec": spec, "status": status});
        serde_json::from_value(claim).expect("a claim")
    };
    let on = |node: &str| {
        let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
        let terms = json!([{"matchFields": [field]}]);
        json!({"allocation": {"availableOnNodes": {"nodeSelectorTerms": terms}}})
    };
    let task = |decided: Value, ours: Option<Value>| {
        let ours = ours.map(|ours| claim(ours).status.allocation.expect("an allocation"));
        ClaimTask {
            key: Key::new("ns", "c"),
            uid: "uid-c".into(),
            claim: Arc::new(claim(decided)),
            allocation: ours.map(|ours| ("d".to_owned(), Arc::new(ours))),
        }
    };
    let by_driver = task(on("n0"), None);
    assert_eq!(by_driver.is_lost(&claim(on("n0"))), None);
    assert_eq!(by_driver.is_lost(&claim(on("n1"))), Some("allocated"));
    assert_eq!(by_driver.is_lost(&claim(json!({}))), Some("deallocated"));
    let by_us = task(json!({}), Some(on("n0")));
    assert_eq!(by_us.is_lost(&claim(json!({}))), None);
    assert_eq!(by_us.is_lost(&claim(on("n0"))), None);
    assert_eq!(by_us.is_lost(&claim(on("n1"))), Some("allocated"));
}
