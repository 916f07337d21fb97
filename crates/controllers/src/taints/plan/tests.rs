use serde_json::{Value, json};

use super::super::rules::{Simulated, no_effect, no_execute, other_effect};
use super::*;

const DRIVER: &str = "d.example.com";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn time(second: i64) -> String {
    crate::controller::clock::rfc3339(at(second))
}

fn taint(effect: &str, second: i64) -> Value {
    json!({"key": "k", "value": "v", "effect": effect, "timeAdded": time(second)})
}

fn slice(generation: i64, taints: Value) -> Arc<ResourceSlice> {
    let slice = json!({
        "metadata": {"name": "s"},
        "spec": {
            "driver": DRIVER, "nodeName": "n",
            "pool": {"name": "n", "generation": generation, "resourceSliceCount": 1},
            "devices": [{"name": "x", "taints": taints}, {"name": "y"}],
        },
    });
    Arc::new(serde_json::from_value(slice).unwrap())
}

fn tainted(taints: Value) -> Tainted {
    let mut tainted = Tainted::default();
    tainted.set_pool(&pool_key(DRIVER, "n"), &[slice(1, taints)]);
    tainted
}

fn claim(device: &str, tolerations: Value) -> Arc<ResourceClaim> {
    let claim = json!({
        "metadata": {"name": "c", "namespace": "ns"},
        "spec": {},
        "status": {
            "allocation": {"devices": {"results": [
                {"request": "r", "driver": DRIVER, "pool": "n", "device": device, "tolerations": tolerations},
            ]}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "pod-1"}],
        },
    });
    Arc::new(serde_json::from_value(claim).unwrap())
}

fn pod(node: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "pod-1"},
        "spec": {"containers": [], "nodeName": node, "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]},
    }))
    .unwrap()
}

fn rule(effect: &str, selector: Value) -> Arc<Rule> {
    let rule = json!({
        "metadata": {"name": "r", "uid": "rule-1"},
        "spec": {"deviceSelector": selector, "taint": taint(effect, 0)},
    });
    Arc::new(serde_json::from_value(rule).unwrap())
}

/// When the pod has to go, in seconds.
fn due(claim: &Arc<ResourceClaim>, tainted: &Tainted, rules: &[Arc<Rule>]) -> Option<i64> {
    let found = eviction(&pod("n"), |_| Some(claim.clone()), tainted, rules, at(100));
    found.map(|e| e.at.as_second() - at(0).as_second())
}

#[test]
fn only_no_execute_taints_of_the_used_device_count() {
    assert_eq!(
        due(
            &claim("x", json!([])),
            &tainted(json!([taint("NoExecute", 7)])),
            &[]
        ),
        Some(7)
    );
    assert_eq!(
        due(
            &claim("y", json!([])),
            &tainted(json!([taint("NoExecute", 7)])),
            &[]
        ),
        None
    );
    assert_eq!(
        due(
            &claim("x", json!([])),
            &tainted(json!([taint("NoSchedule", 7)])),
            &[]
        ),
        None
    );
}

#[test]
fn tolerations_delay_or_prevent() {
    let bad = tainted(json!([taint("NoExecute", 7)]));
    let check = |tolerations: Value, wanted: Option<i64>| {
        assert_eq!(
            due(&claim("x", tolerations.clone()), &bad, &[]),
            wanted,
            "{tolerations}"
        );
    };
    let exists = |effect: &str, seconds: Value| json!({"key": "k", "operator": "Exists", "effect": effect, "tolerationSeconds": seconds});
    check(json!([exists("NoExecute", Value::Null)]), None);
    check(json!([exists("NoExecute", json!(30))]), Some(37));
    check(
        json!([
            exists("NoExecute", json!(30)),
            exists("NoExecute", json!(10))
        ]),
        Some(17),
    );
    check(json!([exists("NoExecute", json!(-5))]), Some(7));
    check(
        json!([
            exists("NoExecute", json!(30)),
            exists("NoExecute", Value::Null)
        ]),
        None,
    );
    // An empty effect tolerates for scheduling only.
    check(json!([{"key": "k", "operator": "Exists"}]), Some(7));
    check(
        json!([{"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute"}]),
        None,
    );
    check(
        json!([{"key": "k", "operator": "Equal", "value": "w", "effect": "NoExecute"}]),
        Some(7),
    );
    check(json!([{"operator": "Exists", "effect": "NoExecute"}]), None);
}

#[test]
fn a_toleration_of_a_value_without_a_key_is_about_every_key() {
    let bad = tainted(json!([taint("NoExecute", 7)]));
    let check = |value: &str, wanted: Option<i64>| {
        let toleration = json!({"operator": "Equal", "value": value, "effect": "NoExecute"});
        assert_eq!(due(&claim("x", json!([toleration])), &bad, &[]), wanted);
    };
    check("v", None);
    check("w", Some(7));
}

#[test]
fn of_several_taints_the_earliest_counts() {
    let bad = tainted(json!([taint("NoExecute", 9), taint("NoExecute", 4)]));
    assert_eq!(due(&claim("x", json!([])), &bad, &[]), Some(4));
}

#[test]
fn old_generations_do_not_count() {
    let mut tainted = Tainted::default();
    let pool = pool_key(DRIVER, "n");
    assert!(tainted.set_pool(&pool, &[slice(1, json!([taint("NoExecute", 7)]))]));
    assert!(tainted.set_pool(
        &pool,
        &[
            slice(1, json!([taint("NoExecute", 7)])),
            slice(2, json!([]))
        ]
    ));
    assert!(tainted.is_empty());
    assert!(!tainted.set_pool(&pool, &[slice(3, json!([]))]), "no news");
}

#[test]
fn rules_select_devices() {
    let none = Tainted::default();
    let check = |selector: Value, wanted: Option<i64>| {
        assert_eq!(
            due(
                &claim("x", json!([])),
                &none,
                &[rule("NoExecute", selector.clone())]
            ),
            wanted,
            "{selector}"
        );
    };
    check(Value::Null, None);
    check(json!({}), Some(0));
    check(
        json!({"driver": DRIVER, "pool": "n", "device": "x"}),
        Some(0),
    );
    check(json!({"driver": "other.example.com"}), None);
    check(json!({"device": "y"}), None);
    let off = rule("None", json!({}));
    assert_eq!(due(&claim("x", json!([])), &none, &[off]), None);
}

#[test]
fn only_bound_users_of_the_claim_go() {
    let bad = tainted(json!([taint("NoExecute", 7)]));
    let claim = claim("x", json!([]));
    let find = |_: &str| Some(claim.clone());
    assert!(eviction(&pod(""), find, &bad, &[], at(0)).is_none());
    let mut other = pod("n");
    other.metadata.uid = Some("pod-2".to_owned());
    assert!(
        eviction(&other, find, &bad, &[], at(0)).is_none(),
        "not in reservedFor"
    );
    let mut ending = pod("n");
    ending.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at(0)));
    assert!(
        eviction(&ending, find, &bad, &[], at(0)).is_some(),
        "counts as evicted, whoever deleted it"
    );
    let mut done = pod("n");
    done.status = serde_json::from_value(json!({"phase": "Succeeded"})).unwrap();
    assert!(eviction(&done, find, &bad, &[], at(0)).is_none());
}

/// A pod of group `g` that uses a claim generated for its group, and the claim, reserved for a group.
fn of_group(owner: &str, reserved: Value) -> (Pod, Arc<ResourceClaim>) {
    let mut member = pod("n");
    let spec = member.spec.as_mut().unwrap();
    spec.scheduling_group = serde_json::from_value(json!({"podGroupName": "g"})).unwrap();
    spec.resource_claims = serde_json::from_value(json!([
        {"name": "gpu", "resourceClaimTemplateName": "t"},
    ]))
    .unwrap();
    let statuses = json!({"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]});
    member.status = serde_json::from_value(statuses).unwrap();
    let mut claim = (*claim("x", json!([]))).clone();
    let owner = json!([{
        "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "name": owner,
        "uid": "group-1", "controller": true,
    }]);
    claim.metadata.owner_references = serde_json::from_value(owner).unwrap();
    claim.status.as_mut().unwrap().reserved_for = serde_json::from_value(reserved).unwrap();
    (member, Arc::new(claim))
}

#[test]
fn pods_go_whose_group_has_the_claim() {
    let bad = tainted(json!([taint("NoExecute", 7)]));
    let check = |owner: &str, reserved: Value, goes: bool| {
        let (pod, claim) = of_group(owner, json!([reserved]));
        let found = eviction(&pod, |_| Some(claim.clone()), &bad, &[], at(0));
        assert_eq!(found.is_some(), goes, "{owner} {reserved}");
    };
    let consumer = |group: &str, resource: &str, name: &str| json!({"apiGroup": group, "resource": resource, "name": name, "uid": "group-1"});
    let group = consumer("scheduling.k8s.io", "podgroups", "g");
    check("g", group.clone(), true);
    // Made for another group, reserved for another one, or for something else that has the name.
    check("h", group, false);
    check("g", consumer("scheduling.k8s.io", "podgroups", "h"), false);
    check("g", consumer("example.com", "podgroups", "g"), false);
    check("g", consumer("scheduling.k8s.io", "workloads", "g"), false);
}

#[test]
fn a_group_does_not_concern_pods_outside() {
    let bad = tainted(json!([taint("NoExecute", 7)]));
    let group = json!([{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "group-1"}]);
    let (mut pod, claim) = of_group("g", group);
    pod.spec.as_mut().unwrap().scheduling_group = None;
    assert!(eviction(&pod, |_| Some(claim.clone()), &bad, &[], at(0)).is_none());
}

#[test]
fn conditions_of_rules_in_upstreams_words() {
    assert_eq!(
        no_execute(1, 1, 0),
        (
            "True",
            "PodsPendingEviction",
            "1 pod needs to be evicted in 1 namespace.".to_owned()
        )
    );
    assert_eq!(
        no_execute(3, 2, 1).2,
        "3 pods need to be evicted in 2 different namespaces. 1 pod evicted since starting the controller."
    );
    assert_eq!(
        no_execute(0, 0, 2),
        (
            "False",
            "Completed",
            "2 pods evicted since starting the controller.".to_owned()
        )
    );
    assert_eq!(no_execute(0, 0, 0).1, "NotStarted");
    assert_eq!(
        other_effect(0),
        (
            "False",
            "OtherEffect",
            "Eviction only happens for the NoExecute effect.".to_owned()
        )
    );
    let found = Simulated {
        published: 1,
        allocated: 2,
        pods: 1,
        namespaces: 1,
    };
    assert_eq!(
        no_effect(&found, 0).2,
        "1 published device selected. 2 allocated devices selected. 1 pod would be evicted in 1 namespace if the \
         effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger \
         an update."
    );
}

/// A pod that got its device by an extended resource is evicted as well, if the claim was created for it.
#[test]
fn users_of_extended_resources_go_too() {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "pod-1"},
        "spec": {"containers": [], "nodeName": "n"},
        "status": {"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": []}},
    }))
    .unwrap();
    assert!(has_claims(&pod));
    let check = |owner: &str, wanted: bool| {
        let mut made = (*claim("x", json!([]))).clone();
        made.metadata.owner_references = serde_json::from_value(json!([
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": owner, "controller": true},
        ]))
        .unwrap();
        let made = Arc::new(made);
        let bad = tainted(json!([taint("NoExecute", 7)]));
        let find = |name: &str| (name == "c").then(|| made.clone());
        let found = eviction(&pod, find, &bad, &[], at(100));
        assert_eq!(found.is_some(), wanted, "{owner}");
    };
    check("pod-1", true);
    check("pod-2", false);
}
