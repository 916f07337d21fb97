//! Pods that need a shared claim on different nodes.

use super::*;

/// Claim `c` is allocated on `n1`, where only `q` can use it: the driver of claim `a` of pod `p` refuses that node.
fn contested(c: Value, q: Value) -> Fixture {
    let mut fixture = Fixture::usual();
    fixture.claim("c", allocated_on("n1", c));
    fixture.claim("a", json!({}));
    fixture.claim("b", allocated_on("n1", json!({})));
    let answers = json!([{"name": "a", "unsuitableNodes": ["n1"]}]);
    fixture.scheduling("p", &spec("", &["n0", "n1"]), answers);
    let entries = |claims: [&str; 2]| claims.map(|c| json!({"name": c, "resourceClaimName": c}));
    // Tried before `q` whenever both are ready.
    let important = json!({"priority": 10, "resourceClaims": entries(["c", "a"])});
    fixture.any_pod("p", important);
    let mut other = json!({"resourceClaims": entries(["c", "b"])});
    merge(&mut other, &q);
    fixture.any_pod("q", other);
    fixture
}

fn too_large() -> Value {
    json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "100"}}}]})
}

#[test]
fn a_claim_is_left_to_a_pod_that_can_use_it() {
    let mut fixture = contested(json!({}), json!({}));
    let outcome = fixture.run();
    assert_eq!(outcome.deallocated(), None, "{}", outcome.message());
    assert!(
        outcome.message().contains("still not schedulable"),
        "{}",
        outcome.message()
    );
    let job = outcome.bound().expect("a binding");
    assert_eq!((&*job.pod.key.name, &*job.node), ("q", "n1"));
}

#[test]
fn a_claim_is_left_to_a_pod_once() {
    let mut fixture = contested(json!({}), too_large());
    let first = fixture.run();
    assert_eq!(first.deallocated(), None, "{}", first.message());
    assert!(first.bound().is_none());
    // Without another event.
    let deallocated = |outcome: Outcome| outcome.deallocated().map(|(claim, _)| claim);
    assert_eq!(deallocated(fixture.run()).as_deref(), Some("c"));
    // The write failed; both pods are ready again, and `q` had its attempt.
    let failed = Input::Released {
        key: Key::new("ns", "c"),
        uid: "uid-c".into(),
        pod: None,
        claim: None,
    };
    fixture.classic(failed);
    assert_eq!(fixture.core.queue_counts().active, 2);
    assert_eq!(deallocated(fixture.run()).as_deref(), Some("c"));
    // The next allocation is another chance.
    fixture.claim("c", json!({}));
    fixture.classic(Input::Released {
        key: Key::new("ns", "c"),
        uid: "uid-c".into(),
        pod: None,
        claim: None,
    });
    fixture.run();
    fixture.claim("c", allocated_on("n1", json!({})));
    assert_eq!(deallocated(fixture.run()), None);
}

#[test]
fn a_claim_is_deallocated_when_the_pod_that_it_was_left_to_is_deleted() {
    let mut fixture = contested(json!({}), json!({}));
    let time = fixture.time();
    assert!(fixture.core.schedule_one(time));
    let first = Outcome(fixture.core.take_actions());
    assert_eq!(first.deallocated(), None, "{}", first.message());
    let q: Box<Pod> = fixture.object(json!({
        "metadata": {"name": "q", "namespace": "ns", "uid": "uid-q"}, "spec": {"containers": []},
    }));
    let q = std::sync::Arc::new(PodInfo::observed(*q));
    fixture.handle(CoreInput::Pod(Observed::Deleted(Box::new(q))));
    let (claim, _) = fixture.run().deallocated().expect("a deallocation");
    assert_eq!(claim, "c");
}

#[test]
fn a_claim_that_is_being_reserved_is_not_deallocated() {
    let shareable = json!({"allocation": {"shareable": true}});
    let mut fixture = contested(shareable, json!({}));
    assert!(fixture.run().bound().is_some());
    // The reservation for `q` is still being written when `p` is tried again.
    let outcome = fixture.run();
    assert!(outcome.message().contains("still not schedulable"));
    assert_eq!(outcome.deallocated(), None);
}

#[test]
fn a_pod_that_fits_nowhere_selects_no_node_for_the_next_allocation() {
    let mut fixture = Fixture::usual();
    fixture.claim("c", allocated_on("n1", json!({})));
    fixture.scheduling("p", &spec("n1", &["n0", "n1"]), json!([{"name": "c"}]));
    let mut pod = json!({"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]});
    merge(&mut pod, &too_large());
    fixture.any_pod("p", pod);
    assert_eq!(fixture.run().published(), Some(spec("", &["n0", "n1"])));
}
