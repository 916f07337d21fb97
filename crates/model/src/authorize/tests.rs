use serde_json::json;

use super::*;

fn claim(node: Option<&str>, devices: &Value, reserved: &Value) -> Value {
    let selector = node.map(|node| {
        json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]})
    });
    json!({
        "metadata": {"name": "c", "namespace": "ns"},
        "status": {"allocation": {"devices": {}, "nodeSelector": selector}, "devices": devices, "reservedFor": reserved},
    })
}

fn device(driver: &str, ready: bool) -> Value {
    json!({"driver": driver, "pool": "p", "device": "d", "data": {"ready": ready}})
}

/// The questions as `subresource name namespace verb|verb`.
fn check(new: &Value, old: &Value, user: &str, node: Option<&str>, expected: &[&str]) {
    let extra = node
        .map(|node| (NODE_NAME_EXTRA.to_owned(), vec![node.to_owned()]))
        .into_iter()
        .collect();
    let checks = status_checks(
        new,
        old,
        "patch",
        Caller {
            user,
            extra: &extra,
        },
        &Features::default(),
    );
    let shown: Vec<_> = checks
        .iter()
        .map(|check| {
            let verbs: Vec<_> = check
                .any_of
                .iter()
                .map(|permission| permission.verb.as_str())
                .collect();
            let first = &check.any_of[0];
            format!(
                "{} {}/{} {}",
                first.subresource,
                first.namespace,
                first.name,
                verbs.join("|")
            )
        })
        .collect();
    assert_eq!(shown, expected);
}

const DRIVER: &str = "system:serviceaccount:kube-system:driver";

#[test]
fn allocating_and_reserving_need_binding() {
    let (none, some) = (json!([]), json!([{"uid": "u"}]));
    let old = json!({"metadata": {"namespace": "ns"}, "status": {}});
    check(
        &claim(None, &none, &none),
        &old,
        "x",
        None,
        &["binding / patch"],
    );
    check(
        &claim(None, &none, &some),
        &claim(None, &none, &none),
        "x",
        None,
        &["binding / patch"],
    );
    check(
        &claim(None, &none, &some),
        &claim(None, &none, &some),
        "x",
        None,
        &[],
    );
}

#[test]
fn a_driver_is_asked_for_each_driver_that_changed() {
    let none = json!([]);
    let old = claim(
        Some("n1"),
        &json!([device("a", true), device("b", true), device("c", true)]),
        &none,
    );
    let new = claim(
        Some("n1"),
        &json!([device("a", false), device("b", true), device("d", true)]),
        &none,
    );
    let verbs = "associated-node:patch|arbitrary-node:patch";
    let expected = ["a", "c", "d"].map(|name| format!("driver ns/{name} {verbs}"));
    check(
        &new,
        &old,
        DRIVER,
        Some("n1"),
        &expected.each_ref().map(String::as_str),
    );
}

#[test]
fn other_callers_need_permission_for_any_node() {
    let none = json!([]);
    let old = claim(Some("n1"), &none, &none);
    let new = claim(Some("n1"), &json!([device("a", true)]), &none);
    let expected = ["driver ns/a arbitrary-node:patch"];
    check(&new, &old, DRIVER, Some("n2"), &expected);
    check(&new, &old, DRIVER, None, &expected);
    check(&new, &old, "admin", Some("n1"), &expected);
}

#[test]
fn deallocating_does_not_ask_for_drivers() {
    let none = json!([]);
    let old = claim(None, &json!([device("a", true)]), &none);
    let new = json!({"metadata": {"namespace": "ns"}, "status": {}});
    check(&new, &old, DRIVER, None, &["binding / patch"]);
}

#[test]
fn nothing_is_asked_without_the_feature() {
    let features =
        Features::default().with(Feature::DRAResourceClaimGranularStatusAuthorization, false);
    let new = claim(None, &json!([]), &json!([]));
    let caller = Caller {
        user: "x",
        extra: &BTreeMap::new(),
    };
    assert!(status_checks(&new, &json!({}), "update", caller, &features).is_empty());
}

#[test]
fn refusals_name_the_permission() {
    let new = claim(None, &json!([]), &json!([]));
    let caller = Caller {
        user: "x",
        extra: &BTreeMap::new(),
    };
    let checks = status_checks(&new, &json!({}), "update", caller, &Features::default());
    assert_eq!(
        checks[0].denied("no").to_string(),
        "status.allocation: Forbidden: changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"update\" permission: no"
    );
}
