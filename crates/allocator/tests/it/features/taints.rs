//! Taints and tolerations, from slices and from rules.

use allot_allocator::{Allocator, Claims, Limits, Outcome, SelectorCache, TaintRule};
use serde_json::{Value, json};

use crate::make::{check, claim, device, plain, problem, read, request, slice};

fn tainted(taint: Value, tolerations: Value) -> allot_allocator::problem::Problem {
    let devices = vec![
        device("a", json!({"taints": [taint]})),
        device("b", json!({})),
    ];
    let request = request("r", 1, json!({"tolerations": tolerations}));
    problem(
        vec![slice("p", devices, json!({}))],
        vec![claim("c", vec![request], json!({}))],
    )
}

#[test]
fn effects_that_keep_devices_away() {
    for (effect, expected) in [
        ("NoSchedule", "r=p/b"),
        ("NoExecute", "r=p/b"),
        ("None", "r=p/a"),
        ("Future", "r=p/a"),
    ] {
        check(
            &tainted(json!({"key": "k", "effect": effect}), json!([])),
            expected,
        );
    }
}

#[test]
fn what_tolerates_a_taint() {
    let taint = json!({"key": "k", "value": "v", "effect": "NoSchedule"});
    for (toleration, tolerated) in [
        (json!({"operator": "Exists"}), true),
        (json!({"key": "k", "operator": "Exists"}), true),
        (json!({"key": "other", "operator": "Exists"}), false),
        (json!({"key": "k", "operator": "Equal", "value": "v"}), true),
        (json!({"key": "k", "value": "v"}), true),
        (
            json!({"key": "k", "operator": "Equal", "value": "w"}),
            false,
        ),
        (json!({"key": "k", "operator": "Like", "value": "v"}), false),
        (
            json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"}),
            true,
        ),
        (
            json!({"key": "k", "operator": "Exists", "effect": "NoExecute"}),
            false,
        ),
        (
            json!({"key": "k", "operator": "Exists", "tolerationSeconds": 0}),
            true,
        ),
    ] {
        let expected = if tolerated { "r=p/a" } else { "r=p/b" };
        check(&tainted(taint.clone(), json!([toleration])), expected);
    }
}

#[test]
fn tolerations_are_in_the_result() {
    let results = check(
        &tainted(
            json!({"key": "k", "effect": "None"}),
            json!([{"operator": "Exists"}]),
        ),
        "r=p/a",
    );
    let result = &results[0]
        .devices
        .as_ref()
        .unwrap()
        .results
        .as_ref()
        .unwrap()[0];
    assert_eq!(
        result.tolerations.as_ref().unwrap()[0].operator.as_deref(),
        Some("Exists")
    );
}

#[test]
fn taints_do_not_matter_when_the_feature_is_off() {
    let mut made = tainted(json!({"key": "k", "effect": "NoSchedule"}), json!([]));
    made.features.retain(|f| f != "DRADeviceTaints");
    check(&made, "r=p/a");
}

#[test]
fn rules_taint_devices_of_all_slices() {
    let made = problem(
        vec![slice("p", plain(&["a", "b"]), json!({}))],
        vec![claim("c", vec![request("r", 1, json!({}))], json!({}))],
    );
    let mut cluster = made.cluster();
    let claims: Claims = made.claims(&SelectorCache::new());
    let taken = |cluster: &allot_allocator::Cluster| {
        let outcome =
            Allocator::new().allocate(cluster, &made.nodes()[0], &claims, &Limits::default());
        let Outcome::Allocated(found) = outcome else {
            return "nothing".to_owned();
        };
        found.devices(&claims).next().unwrap().device.to_owned()
    };
    let rule = |pool: &str, device: Option<&str>| TaintRule {
        driver: Some("gpu.example.com".into()),
        pool: Some(pool.into()),
        device: device.map(Into::into),
        taint: read(json!({"key": "k", "effect": "NoExecute"})),
    };
    cluster.set_taint_rules(vec![rule("p", Some("a"))]);
    assert_eq!(taken(&cluster), "b");
    cluster.set_taint_rules(vec![rule("p", None)]);
    assert_eq!(taken(&cluster), "nothing");
    // A slice that changes keeps the taints of the rules.
    cluster.apply_as("#0", &made.resource_slices[0]);
    assert_eq!(taken(&cluster), "nothing");
    cluster.set_taint_rules(vec![rule("q", None)]);
    assert_eq!(taken(&cluster), "a");
}
