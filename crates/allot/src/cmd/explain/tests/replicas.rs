//! Workloads of files.

use serde_json::json;

use super::*;

/// What is said of a workload with so many replicas, each with a device, where there are three; and whether all fit.
fn told(replicas: u32, more: Vec<Value>) -> (String, bool) {
    told_of(json!({"name": "web"}), replicas, more)
}

/// The same of a workload with this metadata.
fn told_of(metadata: Value, replicas: u32, more: Vec<Value>) -> (String, bool) {
    let mut objects = vec![
        node("a"),
        node("b"),
        class("true"),
        slice("a", json!([{"name": "x"}])),
        slice("b", json!([{"name": "x"}, {"name": "y"}])),
        template(),
    ];
    objects.extend(more);
    let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
        "spec": {"replicas": replicas, "template": {"spec": templated()}}});
    of_workload(&objects, &workload, false)
}

#[test]
fn the_replicas_that_fit_are_counted() {
    let (text, fits) = told(3, Vec::new());
    assert_eq!(
        text,
        "Deployment default/web: 3 of 3 replicas fit\n  1 on a, 2 on b\n"
    );
    assert!(fits);
    let (text, fits) = told(5, Vec::new());
    let first = "Deployment default/web: 3 of 5 replicas fit\n  1 on a, 2 on b\npod default/web-3 fits on none of 2 nodes\n";
    assert!(text.starts_with(first) && !fits, "{text}");
    assert!(text.contains("in use: 1 by pod default/web-"), "{text}");
}

#[test]
fn quotas_count_for_replicas() {
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "default"}, "spec": {},
        "status": {"hard": {"gpu.deviceclass.resource.k8s.io/devices": "2"}, "used": {}}});
    let (text, fits) = told(3, vec![quota]);
    assert!(
        text.starts_with("Deployment default/web: 2 of 3 replicas fit\n") && !fits,
        "{text}"
    );
    assert!(
        text.contains("is not let in: claim \"c\" of it cannot be made: exceeded quota: q"),
        "{text}"
    );
}

#[test]
fn the_pods_that_a_workload_has_are_not_in_its_way() {
    let own = |name: &str, claim: &str, node: Option<&str>| {
        let mut own = pod(name, json!({"resourceClaimName": claim}));
        own["metadata"]["labels"] = json!({"pod-template-hash": "7f"});
        own["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1",
            "kind": "ReplicaSet", "name": "web-7f", "uid": "r", "controller": true}]);
        own["spec"]["nodeName"] = json!(node);
        own["status"] = json!({"phase": if node.is_some() { "Running" } else { "Pending" }});
        own
    };
    let running = || {
        vec![
            own("web-7f-a", "one", Some("a")),
            held("one", "a", json!(["x"]), Some("web-7f-a")),
            own("web-7f-b", "two", Some("b")),
            held("two", "b", json!(["x"]), Some("web-7f-b")),
        ]
    };
    let metadata = json!({"name": "web", "uid": "w"});
    let (text, fits) = told_of(metadata.clone(), 4, running());
    let first = "Deployment default/web: 2 on nodes, 1 of 2 more fit\n  1 on b\n";
    assert!(text.starts_with(first) && !fits, "{text}");
    let (text, fits) = told_of(metadata.clone(), 2, running());
    assert_eq!(text, "Deployment default/web: 2 on nodes, no more wanted\n");
    assert!(fits);
    // The one that waits is tried itself, and is not counted twice.
    let mut waiting = running();
    waiting.push(own("web-7f-c", "three", None));
    waiting.push(claim("three", request(json!({}))));
    let (text, fits) = told_of(metadata, 3, waiting);
    let all = "Deployment default/web: 2 on nodes, 1 of 1 more fit\n  1 on b\n";
    assert_eq!(text, all);
    assert!(fits);
}
