use super::*;

fn pod(value: Value) -> Pod {
    let mut base = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "pod-1"},
        "spec": {"containers": [], "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]},
    });
    merge(&mut base, value);
    serde_json::from_value(base).unwrap()
}

fn claim(value: Value) -> ResourceClaim {
    let mut base = json!({
        "metadata": {"name": "c", "namespace": "ns", "uid": "claim-1"},
        "spec": {"devices": {}},
    });
    merge(&mut base, value);
    serde_json::from_value(base).unwrap()
}

fn merge(base: &mut Value, more: Value) {
    match (base, more) {
        (Value::Object(base), Value::Object(more)) => {
            for (key, value) in more {
                merge(base.entry(key).or_insert(Value::Null), value);
            }
        }
        (base, more) => *base = more,
    }
}

fn user(uid: &str) -> ResourceClaimConsumerReference {
    ResourceClaimConsumerReference {
        api_group: None,
        resource: "pods".to_owned(),
        name: "p".to_owned(),
        uid: uid.to_owned(),
    }
}

/// A claim that is allocated, reserved for these and has the finalizer (or not).
fn allocated(users: &[&str], protected: bool, deleting: bool) -> ResourceClaim {
    let reserved: Vec<Value> = users.iter().map(|u| json!(user(u))).collect();
    let mut value = json!({"status": {"allocation": {"devices": {}}, "reservedFor": reserved}});
    if protected {
        value["metadata"]["finalizers"] = json!(["example.com/other", FINALIZER]);
    }
    if deleting {
        value["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    claim(value)
}

#[test]
fn generated_names_keep_a_part_of_both_names() {
    assert_eq!(generate_name("pod", "gpu"), "pod-gpu-");
    // 57 bytes are the most that is not cut.
    let pod = "p".repeat(52);
    assert_eq!(generate_name(&pod, "gpu").len(), 57);
    let cut = generate_name(&"p".repeat(100), &"c".repeat(50));
    // 152 bytes in all: 100*57/152 = 37 and 50*57/152 = 18, without a hyphen at the end.
    assert_eq!(cut, format!("{}-{}", "p".repeat(37), "c".repeat(18)));
}

#[test]
fn a_claim_is_released_step_by_step() {
    let check = |claim: ResourceClaim, needed: &[&str], wanted: &[ClaimStep]| {
        let needed: Vec<_> = needed.iter().map(|u| user(u)).collect();
        assert_eq!(release(&claim, &needed), wanted);
    };
    let unprotected = || ClaimStep::RemoveFinalizer(vec!["example.com/other".to_owned()]);
    // All consumers still need it.
    check(allocated(&["a"], true, false), &["a"], &[]);
    // One of two was deleted.
    check(
        allocated(&["a", "b"], true, false),
        &["b"],
        &[ClaimStep::ReservedFor(vec![user("b")])],
    );
    // The last one was deleted: released, and the finalizer is removed too, although the claim is not being deleted.
    check(
        allocated(&["a"], true, false),
        &[],
        &[
            ClaimStep::Status(json!({"reservedFor": null, "allocation": null})),
            unprotected(),
        ],
    );
    // A claim of another component (no finalizer) is not deallocated.
    check(
        allocated(&["a"], false, false),
        &[],
        &[ClaimStep::ReservedFor(Vec::new())],
    );
    // Deleted while allocated and unused.
    check(
        allocated(&[], true, true),
        &[],
        &[
            ClaimStep::Status(json!({"allocation": null})),
            unprotected(),
        ],
    );
    // Deleted, deallocated: only the finalizer is left.
    let mut empty = allocated(&[], true, true);
    empty.status = None;
    check(empty, &[], &[unprotected()]);
    // Deleted but in use.
    check(allocated(&["a"], true, true), &["a"], &[]);
    // Allocated and unused, not deleted: the scheduler keeps it for its pod.
    check(allocated(&[], true, false), &[], &[]);
}

#[test]
fn consumers_are_judged_by_the_cache_or_the_server() {
    let reference = user("pod-1");
    let check = |wanted: Consumer, cached: Option<Pod>, deleted: bool| {
        assert_eq!(consumer(&reference, cached.as_ref(), deleted), wanted);
    };
    check(Consumer::Needs, Some(pod(json!({}))), false);
    check(
        Consumer::Gone,
        Some(pod(json!({"status": {"phase": "Succeeded"}}))),
        false,
    );
    check(
        Consumer::Gone,
        Some(pod(
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        )),
        false,
    );
    let ending = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"nodeName": "n"}});
    check(Consumer::Needs, Some(pod(ending)), false);
    check(
        Consumer::AskServer,
        Some(pod(json!({"metadata": {"uid": "pod-2"}}))),
        false,
    );
    check(Consumer::AskServer, None, false);
    check(Consumer::Gone, None, true);
    let group = ResourceClaimConsumerReference {
        api_group: Some("scheduling.k8s.io".to_owned()),
        ..user("x")
    };
    assert!(!is_pod(&group));
}

#[test]
fn a_new_claim_copies_the_template_and_names_its_pod() {
    let template = json!({
        "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"adminAccess": true}, "future": 1}]}},
    });
    let new = new_claim(&Owner::pod(&pod(json!({}))), "gpu", &template);
    assert_eq!(new["metadata"]["generateName"], "p-gpu-");
    assert_eq!(
        new["metadata"]["annotations"],
        json!({"c": "d", POD_CLAIM_NAME_ANNOTATION: "gpu"})
    );
    assert_eq!(new["metadata"]["ownerReferences"][0]["uid"], "pod-1");
    assert_eq!(
        new["metadata"]["ownerReferences"][0]["blockOwnerDeletion"],
        Value::Null
    );
    // Fields that we do not know are copied too.
    assert_eq!(new["spec"]["devices"]["requests"][0]["future"], 1);
    assert!(asks_for_admin_access(&new));
    // The template itself is as it was.
    assert_eq!(template["metadata"]["annotations"], json!({"c": "d"}));
}

#[test]
fn work_is_needed_for_missing_foreign_and_unreserved_claims() {
    let named =
        json!({"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]}});
    let own = json!({"metadata": {"ownerReferences": [
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod-1", "controller": true},
    ]}});
    let check = |wanted: bool, pod: Pod, claim: Option<ResourceClaim>| {
        let claim = claim.map(Arc::new);
        let found = pod_claims(&pod).any(|c| entry_needs_work(&pod, c, |_| claim.clone()));
        assert_eq!(found, wanted);
    };
    check(true, pod(json!({})), None);
    check(true, pod(named.clone()), None);
    check(true, pod(named.clone()), Some(claim(json!({}))));
    check(false, pod(named.clone()), Some(claim(own.clone())));
    let mut bound = named;
    bound["spec"]["nodeName"] = json!("n");
    check(false, pod(bound.clone()), Some(claim(own.clone())));
    let mut allocated = own;
    allocated["status"]["allocation"] = json!({"devices": {}});
    check(true, pod(bound.clone()), Some(claim(allocated.clone())));
    allocated["status"]["reservedFor"] = json!([user("pod-1")]);
    check(false, pod(bound), Some(claim(allocated)));
}

#[test]
fn statuses_list_all_generated_claims_in_order() {
    let pod = pod(json!({
        "spec": {"resourceClaims": [
            {"name": "b", "resourceClaimTemplateName": "t"},
            {"name": "direct", "resourceClaimName": "x"},
            {"name": "a", "resourceClaimTemplateName": "t"},
        ]},
        "status": {"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "old-a"}]},
    }));
    assert_eq!(
        claim_statuses(&pod, &[("b".to_owned(), "new-b".to_owned())]),
        [
            json!({"name": "b", "resourceClaimName": "new-b"}),
            json!({"name": "a", "resourceClaimName": "old-a"}),
        ]
    );
}

#[test]
fn an_entry_whose_status_has_no_name_needs_no_claim() {
    let pod = pod(json!({
        "spec": {"resourceClaims": [
            {"name": "x", "resourceClaimTemplateName": "t"},
            {"name": "y", "resourceClaimTemplateName": "t"},
        ]},
        "status": {"resourceClaimStatuses": [{"name": "x"}]},
    }));
    let needs = |name: &str| {
        let entry = pod_claims(&pod).find(|c| c.name == name).unwrap();
        assert_eq!(needs_none(&pod, entry), name == "x", "{name}");
        entry_needs_work(&pod, entry, |_| None)
    };
    assert!(!needs("x"));
    assert!(needs("y"), "nothing is said about it yet");
    // What was said stays.
    assert_eq!(
        claim_statuses(&pod, &[("y".to_owned(), "new-y".to_owned())]),
        [
            json!({"name": "x"}),
            json!({"name": "y", "resourceClaimName": "new-y"}),
        ]
    );
}
