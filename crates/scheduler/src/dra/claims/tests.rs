use super::*;
use allot_allocator::Features;
use proptest::prelude::*;
use serde_json::{Value, json};

fn claim(name: &str, uid: &str, version: u64, device: Option<&str>) -> Arc<ResourceClaim> {
    let allocation = device.map_or(Value::Null, |d| json!({"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": d}]}}));
    let value = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": version.to_string()},
        "spec": {},
        "status": {"allocation": allocation},
    });
    Arc::new(serde_json::from_value(value).expect("fixture"))
}

fn allocation(device: &str) -> Arc<AllocationResult> {
    Arc::new(
        allocation_of(&claim("x", "x", 1, Some(device)))
            .expect("has one")
            .clone(),
    )
}

fn key(name: &str) -> Key {
    Key::new("ns", name)
}

fn uid(text: &str) -> Uid {
    text.into()
}

fn empty() -> Claims {
    Claims::new(Cluster::new(Features::ALL))
}

/// Devices in use, with repetitions.
fn in_use(claims: &Claims) -> Vec<String> {
    let mut out: Vec<String> = claims
        .cluster()
        .holders()
        .flat_map(|(_, held)| held.iter().map(|h| h.device.to_string()))
        .collect();
    out.sort();
    out
}

fn check(claims: &Claims, expected: &[&str]) {
    assert_eq!(in_use(claims), expected);
}

#[test]
fn the_life_of_an_allocation() {
    let mut c = empty();
    c.observe(claim("a", "1", 1, None));
    check(&c, &[]);
    c.reserve(&claim("a", "1", 1, None), &allocation("x"), &uid("pod"));
    check(&c, &["x"]);
    c.assume(claim("a", "1", 2, Some("x")));
    check(&c, &["x"]);
    c.finish_write(&uid("1"), &uid("pod"), true);
    check(&c, &["x"]);
    c.observe(claim("a", "1", 2, Some("x")));
    check(&c, &["x"]);
    assert!(c.observe(claim("a", "1", 3, None)).freed);
    check(&c, &[]);
}

#[test]
fn late_watch_events_do_not_undo_a_write() {
    let mut c = empty();
    c.observe(claim("a", "1", 1, None));
    c.reserve(&claim("a", "1", 1, None), &allocation("x"), &uid("pod"));
    c.assume(claim("a", "1", 3, Some("x")));
    c.finish_write(&uid("1"), &uid("pod"), true);
    // The finalizer's write, seen after the status was written.
    c.observe(claim("a", "1", 2, None));
    check(&c, &["x"]);
}

#[test]
fn a_failed_binding_frees_unless_shared() {
    let mut c = empty();
    c.observe(claim("a", "1", 1, None));
    c.reserve(&claim("a", "1", 1, None), &allocation("x"), &uid("pod-1"));
    c.reserve(&claim("a", "1", 1, None), &allocation("x"), &uid("pod-2"));
    assert!(!c.finish_write(&uid("1"), &uid("pod-1"), false).freed);
    check(&c, &["x"]);
    assert!(c.finish_write(&uid("1"), &uid("pod-2"), false).freed);
    check(&c, &[]);
}

#[test]
fn allocations_of_other_schedulers_count() {
    let mut c = empty();
    c.observe(claim("a", "1", 1, None));
    c.reserve(&claim("a", "1", 1, None), &allocation("x"), &uid("pod"));
    c.observe(claim("a", "1", 2, Some("y")));
    check(&c, &["x", "y"]);
    c.finish_write(&uid("1"), &uid("pod"), false);
    check(&c, &["y"]);
}

#[test]
fn an_answer_about_a_deleted_claim_is_ignored() {
    let mut c = empty();
    c.observe(claim("a", "1", 1, None));
    c.reserve(&claim("a", "1", 1, None), &allocation("x"), &uid("pod"));
    c.observe_deleted(&key("a"));
    check(&c, &["x"]);
    c.assume(claim("a", "1", 2, Some("x")));
    c.finish_write(&uid("1"), &uid("pod"), true);
    check(&c, &[]);
    assert!(c.get(&key("a")).is_none());
}

/// Seed 2085 of the simulation: pods were not requeued for a freed device when the answer to a write came after the
/// deletion of what was written.
#[test]
fn a_late_answer_frees_what_the_claim_lost_before() {
    let frees = |seen: Option<&str>| {
        let mut c = empty();
        c.observe(claim("a", "1", 1, None));
        c.reserve(&claim("a", "1", 1, None), &allocation("x"), &uid("pod"));
        c.observe(claim("a", "1", 2, Some("x")));
        c.observe(claim("a", "1", 3, seen));
        c.assume(claim("a", "1", 2, Some("x")));
        let freed = c.finish_write(&uid("1"), &uid("pod"), true).freed;
        check(&c, seen.as_slice());
        freed
    };
    assert!(frees(None));
    assert!(frees(Some("y")));
    assert!(!frees(Some("x")));
}

#[test]
fn recreated_claims_start_empty() {
    let mut c = empty();
    c.observe(claim("a", "1", 5, Some("x")));
    assert!(c.observe(claim("a", "2", 9, None)).freed);
    check(&c, &[]);
    // A late answer about the old one.
    c.assume(claim("a", "1", 6, Some("x")));
    check(&c, &[]);
}

#[test]
fn claims_known_only_from_our_write_end_with_a_newer_list() {
    let mut c = empty();
    c.assume(claim("s", "9", 7, Some("x")));
    assert!(c.unseen_older_than("6").is_empty());
    assert_eq!(c.unseen_older_than("7"), [key("s")]);
}

/// Why a claim has to give way.
fn conflict(claims: &Claims, uid: &str) -> Option<String> {
    claims.conflict(uid).map(|c| c.describe("ns"))
}

fn is_observed(claims: &Claims, claim: &ResourceClaim) -> bool {
    claims.is_observed(&Version::from(claim))
}

const HELD_BY_A: &str = "device d/p/x is also allocated to ns/a";

#[test]
fn the_claim_observed_second_yields() {
    let mut c = empty();
    c.observe(claim("b", "2", 1, None));
    c.reserve(&claim("b", "2", 1, None), &allocation("x"), &uid("pod"));
    // Another scheduler was faster: no write of this one was observed yet.
    assert!(!c.observe(claim("a", "1", 3, Some("x"))).double_allocated);
    c.assume(claim("b", "2", 4, Some("x")));
    c.finish_write(&uid("2"), &uid("pod"), true);
    let ours = claim("b", "2", 4, Some("x"));
    assert!(!is_observed(&c, &ours));
    assert_eq!((conflict(&c, "1"), conflict(&c, "2")), (None, None));
    assert!(c.observe(claim("b", "2", 4, Some("x"))).double_allocated);
    assert!(is_observed(&c, &ours));
    assert_eq!(conflict(&c, "1"), None);
    assert_eq!(conflict(&c, "2").as_deref(), Some(HELD_BY_A));
    // A later change of the claim does not make it the first.
    c.observe(claim("b", "2", 5, Some("x")));
    assert_eq!(conflict(&c, "2").as_deref(), Some(HELD_BY_A));
    // The other one is gone.
    c.observe(claim("a", "1", 6, None));
    assert_eq!(conflict(&c, "2"), None);
}

#[test]
fn what_looks_the_same_is_not_seen() {
    let mut c = empty();
    c.observe(claim("a", "1", 10, Some("x")));
    // Deallocated and allocated to the same claim again, while another claim may have had the device in between.
    c.assume(claim("a", "1", 11, None));
    c.assume(claim("a", "1", 14, Some("x")));
    assert!(!is_observed(&c, &claim("a", "1", 14, Some("x"))));
    c.observe(claim("a", "1", 14, Some("x")));
    assert!(is_observed(&c, &claim("a", "1", 14, Some("x"))));
    assert!(!is_observed(&c, &claim("a", "2", 14, Some("x"))));
}

#[test]
fn the_claim_observed_first_stays() {
    let mut c = empty();
    c.observe(claim("a", "1", 1, None));
    c.reserve(&claim("a", "1", 1, None), &allocation("x"), &uid("pod"));
    c.assume(claim("a", "1", 3, Some("x")));
    c.finish_write(&uid("1"), &uid("pod"), true);
    c.observe(claim("a", "1", 3, Some("x")));
    assert!(c.observe(claim("b", "2", 4, Some("x"))).double_allocated);
    assert_eq!(conflict(&c, "1"), None);
    assert_eq!(conflict(&c, "2").as_deref(), Some(HELD_BY_A));
}

#[test]
fn of_a_list_no_claim_is_known_to_be_the_first() {
    let mut c = empty();
    let list = [claim("a", "1", 3, Some("x")), claim("b", "2", 4, Some("x"))];
    c.observe_list(list.into_iter());
    assert!(conflict(&c, "1").is_some() && conflict(&c, "2").is_some());
    // The claim known before the list is the first.
    let mut c = empty();
    c.observe(claim("a", "1", 3, Some("x")));
    let list = [claim("b", "2", 4, Some("x")), claim("a", "1", 3, Some("x"))];
    c.observe_list(list.into_iter());
    assert_eq!(conflict(&c, "1"), None);
    assert_eq!(conflict(&c, "2").as_deref(), Some(HELD_BY_A));
}

#[test]
fn a_claim_that_changed_during_a_disconnect_is_not_the_first() {
    // In the gap a lost the device, b got it, and a got it again.
    let mut c = empty();
    c.observe(claim("a", "1", 10, Some("x")));
    let list = [
        claim("a", "1", 14, Some("x")),
        claim("b", "2", 12, Some("x")),
    ];
    c.observe_list(list.into_iter());
    assert!(conflict(&c, "1").is_some() && conflict(&c, "2").is_some());
    // The claim was made again under its name.
    let mut c = empty();
    c.observe(claim("a", "1", 10, Some("x")));
    let list = [
        claim("a", "3", 14, Some("x")),
        claim("b", "2", 12, Some("x")),
    ];
    c.observe_list(list.into_iter());
    assert!(conflict(&c, "3").is_some() && conflict(&c, "2").is_some());
}

/// A claim with a share of the device `x`, which has four of memory.
fn share(name: &str, uid: &str, version: u64, memory: u64) -> Arc<ResourceClaim> {
    let mut claim = (*claim(name, uid, version, Some("x"))).clone();
    let results = claim
        .status
        .as_mut()
        .and_then(|s| s.allocation.as_mut()?.devices.as_mut()?.results.as_mut());
    for result in results.into_iter().flatten() {
        result.share_id = Some(format!("share-{uid}"));
        let amount = k8s_openapi::apimachinery::pkg::api::resource::Quantity(memory.to_string());
        result.consumed_capacity = Some([("memory".to_owned(), amount)].into());
    }
    Arc::new(claim)
}

fn with_shared_device() -> Claims {
    let device = json!({
        "name": "x", "allowMultipleAllocations": true, "capacity": {"memory": {"value": "4"}},
    });
    let pool = json!({"name": "p", "generation": 1, "resourceSliceCount": 1});
    let spec = json!({"driver": "d", "nodeName": "n", "pool": pool, "devices": [device]});
    let slice = json!({"metadata": {"name": "s"}, "spec": spec});
    let mut claims = empty();
    let slice = serde_json::from_value(slice).expect("fixture");
    claims.cluster_mut().apply(&slice);
    claims
}

/// Otherwise both of two schedulers give way: each counted what it had written itself and not seen.
#[test]
fn what_was_not_seen_overdraws_nothing() {
    let mut c = with_shared_device();
    c.observe(claim("b", "2", 1, None));
    c.assume(share("b", "2", 4, 3));
    // The other scheduler's write came before this one, which is the second.
    assert!(!c.observe(share("a", "1", 3, 2)).double_allocated);
    assert_eq!(conflict(&c, "1"), None);
    assert!(c.observe(share("b", "2", 4, 3)).double_allocated);
    assert_eq!(conflict(&c, "1"), None);
    let text = "device d/p/x is allocated beyond its capacity or counters";
    assert_eq!(conflict(&c, "2").as_deref(), Some(text));
}

#[test]
fn a_claim_that_lost_its_device_loses_its_precedence() {
    let mut c = empty();
    c.observe(claim("a", "1", 1, Some("x")));
    c.observe(claim("b", "2", 2, Some("x")));
    assert_eq!(conflict(&c, "2").as_deref(), Some(HELD_BY_A));
    c.observe(claim("a", "1", 3, None));
    c.observe(claim("a", "1", 4, Some("x")));
    assert_eq!(conflict(&c, "2"), None);
    let text = "device d/p/x is also allocated to ns/b";
    assert_eq!(conflict(&c, "1").as_deref(), Some(text));
    // The same of what is shared.
    let mut c = with_shared_device();
    c.observe(share("a", "1", 1, 3));
    c.observe(share("b", "2", 2, 3));
    assert!(conflict(&c, "2").is_some());
    c.observe_deleted(&key("a"));
    c.observe(share("c", "3", 4, 3));
    assert_eq!(conflict(&c, "2"), None);
    assert!(conflict(&c, "3").is_some());
}

/// What really is in the API server, and what is on its way to the scheduler.
#[derive(Debug, Clone)]
enum Step {
    /// The next watch event arrives.
    Watch,
    /// The answer to the write arrives.
    Answer,
    /// The claim is deallocated by another component after it was allocated.
    Deallocate,
    /// The claim is deleted.
    Delete,
}

proptest! {
    /// Whatever the order in which watch events and answers arrive: from the decision on, the device is in use as long
    /// as it is in the API server; and when everything has arrived, exactly the devices in the API server are in use.
    #[test]
    fn a_held_device_is_never_free(
        steps in proptest::collection::vec(prop_oneof![Just(Step::Watch), Just(Step::Answer), Just(Step::Deallocate), Just(Step::Delete)], 1..12)
    ) {
        let mut c = empty();
        c.observe(claim("a", "1", 1, None));
        c.reserve(&claim("a", "1", 1, None), &allocation("x"), &uid("pod"));
        // History in the API server: finalizer (2), allocation (3), then what the steps say.
        let mut history = vec![Some(claim("a", "1", 2, None)), Some(claim("a", "1", 3, Some("x")))];
        let (mut seen, mut answered, mut version) = (0, false, 3);
        for step in steps {
            match step {
                Step::Watch if seen < history.len() => {
                    match &history[seen] {
                        Some(claim) => c.observe(claim.clone()),
                        None => c.observe_deleted(&key("a")),
                    };
                    seen += 1;
                }
                Step::Answer if !answered => {
                    answered = true;
                    c.assume(claim("a", "1", 3, Some("x")));
                    c.finish_write(&uid("1"), &uid("pod"), true);
                }
                Step::Deallocate if history.last().is_some_and(|l| l.as_ref().is_some_and(|c| allocation_of(c).is_some())) => {
                    version += 1;
                    history.push(Some(claim("a", "1", version, None)));
                }
                Step::Delete if history.last().is_some_and(Option::is_some) => history.push(None),
                _ => {}
            }
            let held = history.last().is_some_and(|l| l.as_ref().is_some_and(|c| allocation_of(c).is_some()));
            if held {
                prop_assert_eq!(in_use(&c), vec!["x".to_owned()]);
            }
        }
        if !answered {
            c.assume(claim("a", "1", 3, Some("x")));
            c.finish_write(&uid("1"), &uid("pod"), true);
        }
        for event in &history[seen..] {
            match event {
                Some(claim) => c.observe(claim.clone()),
                None => c.observe_deleted(&key("a")),
            };
        }
        let held = history.last().is_some_and(|l| l.as_ref().is_some_and(|c| allocation_of(c).is_some()));
        prop_assert_eq!(in_use(&c).len(), usize::from(held));
        prop_assert_eq!(c.in_flight_len(), 0);
    }
}
