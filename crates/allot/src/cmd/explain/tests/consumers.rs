//! Claims that hold devices, and whose they are.

use serde_json::{Value, json};

use super::super::claim as of_claim;
use super::*;

/// The claim `full`, which has the only device, made for an owner; and a pod that waits for it.
fn cluster(owner: Value, reserved: Value, more: Vec<Value>) -> Vec<Value> {
    let mut full = held("full", "a", json!(["x"]), None);
    full["metadata"]["ownerReferences"] = owner;
    full["status"]["reservedFor"] = reserved;
    let mut objects = vec![
        node("a"),
        slice("a", json!([{"name": "x"}])),
        class("true"),
        full,
        claim("claim", request(json!({}))),
        user(),
    ];
    objects.extend(more);
    objects
}

fn owner(kind: &str, name: &str) -> Value {
    json!([{"apiVersion": "v1", "kind": kind, "name": name, "uid": name, "controller": true}])
}

/// A pod of the PodGroup `train`.
fn member() -> Value {
    let mut member = pod("train-0", json!({"resourceClaimName": "other"}));
    member["spec"]["schedulingGroup"] = json!({"podGroupName": "train"});
    member
}

/// It was `claim default/full (no pod)`, or `pod podgroups/train`.
#[test]
fn regression_claims_without_pods_say_whose_they_are() {
    let none = || json!([]);
    let group = json!([{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "train", "uid": "g"}]);
    let gone = "claim default/full of pod default/web-0";
    let empty = "PodGroup default/train, of which no pod is there yet";
    for (owner, reserved, more, expected) in [
        (
            none(),
            none(),
            vec![],
            "claim default/full, reserved for no pod".to_owned(),
        ),
        (
            owner("Pod", "web-0"),
            none(),
            vec![],
            format!("{gone}, which is gone"),
        ),
        (
            owner("Pod", "web-0"),
            none(),
            vec![pod("web-0", json!({"resourceClaimName": "full"}))],
            gone.to_owned(),
        ),
        (
            owner("PodGroup", "train"),
            none(),
            vec![],
            format!("claim default/full of {empty}"),
        ),
        (
            owner("PodGroup", "train"),
            group.clone(),
            vec![],
            empty.to_owned(),
        ),
        (
            owner("PodGroup", "train"),
            group,
            vec![member()],
            "PodGroup default/train".to_owned(),
        ),
    ] {
        let text = explained(&cluster(owner, reserved, more));
        assert!(
            text.contains(&format!("in use: 1 by {expected}\n")),
            "{expected}: {text}"
        );
    }
}

#[test]
fn regression_a_claim_of_a_group_names_the_group() {
    let check = |pods: Vec<Value>, expected: &str| {
        let mut loaded = loaded(&cluster(owner("PodGroup", "train"), json!([]), pods));
        let mut out = Vec::new();
        of_claim::explain(&mut loaded, "default", "full", &mut out, false).expect("explained");
        let text = String::from_utf8(out).expect("UTF-8");
        let expected =
            format!("claim default/full of PodGroup default/train{expected} is allocated\n");
        assert!(text.starts_with(&expected), "{text}");
    };
    check(Vec::new(), ", of which no pod is there yet,");
    check(vec![member()], "");
}
