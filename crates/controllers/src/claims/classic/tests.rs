use super::*;
use allot_reflector::{Readable as _, everything};

fn claim(more: Value) -> ResourceClaim {
    let mut claim = json!({
        "metadata": {"name": "c", "namespace": "ns"},
        "spec": {"resourceClassName": "k"},
        "status": {
            "driverName": "d",
            "allocation": {"shareable": true},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
        },
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        for (inner, value) in value.as_object().into_iter().flatten() {
            claim[key][inner] = value.clone();
        }
    }
    serde_json::from_value(claim).expect("a claim")
}

fn status(status: Value) -> ClaimStep {
    ClaimStep::Status(status)
}

#[test]
fn the_last_reservation_frees_what_the_kind_of_claim_says() {
    let check = |more: Value, early: bool, expected: Vec<ClaimStep>| {
        let claim = claim(more.clone());
        assert_eq!(release(&claim, &[], early), expected, "{more}");
        assert_eq!(release(&claim, &["u".to_owned()], early), []);
    };
    check(
        json!({}),
        false,
        vec![status(
            json!({"reservedFor": null, "deallocationRequested": true}),
        )],
    );
    // Up to 1.27 it stays allocated until it is deleted.
    check(json!({}), true, vec![status(json!({"reservedFor": null}))]);
    check(
        json!({"spec": {"allocationMode": "Immediate"}}),
        false,
        vec![status(json!({"reservedFor": null}))],
    );
    let protected = json!({"finalizers": [DELETE_PROTECTION, "x"]});
    let freed = || {
        let rest = ClaimStep::RemoveFinalizer(vec!["x".to_owned()]);
        let none = json!({"reservedFor": null, "allocation": null, "driverName": null});
        vec![status(none), rest]
    };
    check(json!({"metadata": protected}), false, freed());
    check(
        json!({"metadata": protected, "spec": {"allocationMode": "Immediate"}}),
        false,
        vec![status(json!({"reservedFor": null}))],
    );
    let going = json!({"finalizers": [DELETE_PROTECTION, "x"], "deletionTimestamp": "2024-01-01T00:00:00Z"});
    check(
        json!({"metadata": going, "spec": {"allocationMode": "Immediate"}}),
        false,
        freed(),
    );
}

#[test]
fn a_deleted_claim_without_users_is_let_go() {
    let going =
        json!({"finalizers": [DELETE_PROTECTION], "deletionTimestamp": "2024-01-01T00:00:00Z"});
    let unused =
        claim(json!({"metadata": going, "status": {"reservedFor": [], "allocation": null}}));
    assert_eq!(
        release(&unused, &[], false),
        [ClaimStep::RemoveFinalizer(Vec::new())]
    );
    let idle = claim(json!({"status": {"reservedFor": []}}));
    assert_eq!(release(&idle, &[], false), []);
}

#[test]
fn a_pod_that_was_bound_by_hand_gets_what_it_lacks() {
    let pod: Pod =
        serde_json::from_value(json!({"metadata": {"name": "p", "uid": "v"}})).expect("a pod");
    let check = |more: Value, expected: Help| {
        let claim = json!(claim(more.clone())).to_string();
        let claim = Claim::read(&claim, everything).expect("a claim");
        assert_eq!(prescheduled(&pod, &claim), expected, "{more}");
    };
    check(json!({}), Help::Reserve);
    check(
        json!({"status": {"allocation": {"shareable": false}}}),
        Help::None,
    );
    check(
        json!({"status": {"allocation": {"shareable": false}, "reservedFor": []}}),
        Help::Reserve,
    );
    check(
        json!({"status": {"reservedFor": [{"uid": "v"}]}}),
        Help::None,
    );
    check(
        json!({"status": {"allocation": null, "reservedFor": []}}),
        Help::Negotiate,
    );
    check(
        json!({"status": {"allocation": null, "reservedFor": []}, "spec": {"allocationMode": "Immediate"}}),
        Help::None,
    );
    check(
        json!({"status": {"deallocationRequested": true, "reservedFor": []}}),
        Help::None,
    );
}

#[test]
fn names_of_early_claims_follow_from_the_pod() {
    let entries = json!([{"name": "a", "resourceClaimTemplateName": "t"}, {"name": "b", "resourceClaimName": "c"}]);
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "ns"}, "spec": {"containers": [], "resourceClaims": entries},
    }))
    .expect("a pod");
    assert_eq!(deterministic_claims(&pod), ["ns/p-a"]);
}
