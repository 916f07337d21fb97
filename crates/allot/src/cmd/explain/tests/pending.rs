//! Pods that wait, by reason.

use serde_json::json;

use super::super::Outcome;
use super::super::pending::Pending;
use super::*;

#[test]
fn pods_that_wait_for_the_same_reason_are_one_line() {
    let template = |name: &str, count: u32| {
        dra(
            "ResourceClaimTemplate",
            name,
            Some("default"),
            json!({"spec": {"devices": {"requests": [request(json!({"count": count}))]}}}),
        )
    };
    let mut objects = vec![
        node("a"),
        node("b"),
        class("true"),
        slice("a", json!([{"name": "x"}])),
        slice("b", json!([{"name": "x"}, {"name": "y"}])),
        template("three", 3),
        template("one", 1),
    ];
    for (pod_name, template) in [("p-1", "three"), ("p-2", "three"), ("q", "one")] {
        let name = format!("{pod_name}-c");
        let count = if template == "three" { 3 } else { 1 };
        let mut made = claim(&name, request(json!({"count": count})));
        made["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod",
            "name": pod_name, "uid": pod_name, "controller": true}]);
        objects.push(made);
        let mut pod = pod(pod_name, json!({"resourceClaimTemplateName": template}));
        pod["status"] = json!({"phase": "Pending", "resourceClaimStatuses": [
            {"name": "c", "resourceClaimName": name}]});
        objects.push(pod);
    }
    let mut running = user();
    running["spec"]["nodeName"] = json!("a");
    running["status"] = json!({"phase": "Running"});
    objects.push(running);
    let mut elsewhere = pod("far", json!({"resourceClaimName": "absent"}));
    elsewhere["metadata"]["namespace"] = json!("other");
    objects.push(elsewhere);

    let nothing = |namespace| Pending::new(&mut loaded(&objects), Some(namespace)).nothing();
    let expected = "no pod waits in this namespace; -A shows 4 pods of others";
    assert_eq!(nothing("empty"), expected);

    let told = |namespace: Option<&str>, json: bool| {
        let pending = Pending::new(&mut loaded(&objects), namespace);
        assert_eq!(pending.outcome(), Outcome::DoesNotFit);
        let mut out = Vec::new();
        pending.print(&mut out, json).expect("written");
        String::from_utf8(out).expect("UTF-8")
    };
    let text = told(Some("default"), false);
    let waits = "2 pods: cannot allocate all claims: request r needs 3 devices: 2 seen (nearest: b)\n  \
        default/p-1, default/p-2\n\
        1 pod: it fits, and waits for its turn (on ";
    assert!(
        text.starts_with(waits) && text.ends_with(")\n  default/q\n"),
        "{text}"
    );
    let all = told(None, false);
    let missing = "1 pod: resourceclaim.resource.k8s.io \"absent\" not found; there is no ResourceClaim other/absent\n  other/far\n";
    assert!(all.contains(missing), "{all}");
    let json = told(Some("default"), true);
    let first: Value = serde_json::from_str(json.lines().next().expect("a line")).expect("JSON");
    assert_eq!(first["pods"], json!(["default/p-1", "default/p-2"]));
    assert_eq!(
        (&first["fits"], &first["nearest"]),
        (&json!(false), &json!("b"))
    );
}
