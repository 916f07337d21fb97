use serde_json::{Value, json};

use super::*;

fn quota(namespace: &str, name: &str, spec: Value) -> ResourceQuota {
    let quota = json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec});
    serde_json::from_value(quota).expect("a quota")
}

fn hard(amounts: Value) -> Value {
    json!({ "hard": amounts })
}

fn gpus(amount: &str) -> Value {
    hard(json!({"gpu.deviceclass.allot.dev/allocated-devices": amount}))
}

#[test]
fn only_its_own_names_are_read_of_a_quota() {
    let check = |spec: Value, expected: &[(&str, i64)]| {
        let limits = limits_of(&quota("a", "q", spec));
        let limits: Vec<(&str, i64)> = limits.iter().map(|(c, n)| (&**c, *n)).collect();
        assert_eq!(limits, expected);
    };
    check(gpus("3"), &[("gpu", 3)]);
    check(gpus("2k"), &[("gpu", 2000)]);
    check(gpus("2500m"), &[("gpu", 2)]);
    check(gpus("-500m"), &[("gpu", -1)]);
    check(gpus("many"), &[]);
    check(
        hard(json!({
            "a.example.com.deviceclass.allot.dev/allocated-devices": "1",
            "gpu.deviceclass.resource.k8s.io/devices": "2",
            "count/resourceclaims.resource.k8s.io": "3",
            "requests.gpu.deviceclass.allot.dev/other": "4",
        })),
        &[("a.example.com", 1)],
    );
    let mut scoped = gpus("3");
    scoped["scopes"] = json!(["Terminating"]);
    check(scoped, &[]);
    let mut scoped = gpus("3");
    scoped["scopeSelector"] =
        json!({"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]});
    check(scoped, &[]);
}

#[test]
fn the_smallest_of_several_limits_counts_and_each_namespace_has_its_own() {
    let (mut quotas, mut changed) = (Quotas::default(), Changed::default());
    let all = [
        quota("a", "wide", gpus("5")),
        quota("a", "tight", gpus("2")),
        quota("b", "wide", gpus("7")),
        quota("c", "other", hard(json!({"pods": "1"}))),
    ];
    quotas.set_list(&all, &mut changed);
    assert_eq!(changed.new.len(), 2);
    assert!(changed.first && !quotas.limits("c") && !quotas.are_unused());
    let one = |namespace: &str| Some((namespace.into(), ByClass::from([("gpu".to_owned(), 1)])));
    quotas.used.set(&"1".into(), one("a"));
    quotas.used.set(&"2".into(), one("b"));
    assert_eq!(quotas.left("a", "gpu"), Some(1));
    assert_eq!(quotas.left("b", "gpu"), Some(6));
    assert_eq!(quotas.left("a", "other"), None);
    assert_eq!(quotas.left("c", "gpu"), None);
    // A list without it: it is gone.
    let mut changed = Changed::default();
    quotas.set_list(&all[2..], &mut changed);
    assert_eq!(changed.namespaces.len(), 2);
    assert!(!changed.first && !quotas.limits("a"));
    assert_eq!(quotas.used.total("a", "gpu"), 0);
    // The same again is no change.
    let mut changed = Changed::default();
    quotas.set(&all[2], false, &mut changed);
    assert!(changed.namespaces.is_empty());
    quotas.set(&all[2], true, &mut changed);
    assert!(quotas.are_unused() && changed.namespaces.len() == 1);
}

#[test]
fn a_tally_follows_what_claims_have() {
    let mut tally = Tally::default();
    let has = |namespace: &str, counts: &[(&str, i64)]| {
        let counts = counts.iter().map(|(c, n)| ((*c).to_owned(), *n));
        Some((Arc::from(namespace), counts.collect::<ByClass>()))
    };
    tally.set(&"1".into(), has("a", &[("x", 2), ("y", 1)]));
    tally.set(&"2".into(), has("a", &[("x", 1)]));
    tally.set(&"3".into(), has("b", &[("x", 5)]));
    assert_eq!((tally.total("a", "x"), tally.total("a", "y")), (3, 1));
    tally.set(&"1".into(), has("a", &[("x", 1)]));
    assert_eq!((tally.total("a", "x"), tally.total("a", "y")), (2, 0));
    tally.set(&"1".into(), None);
    tally.set(&"2".into(), has("a", &[]));
    assert_eq!((tally.total("a", "x"), tally.total("b", "x")), (0, 5));
    assert_eq!((tally.claims.len(), tally.totals.len()), (1, 1));
}
