//! Workloads of files.

use serde_json::json;

use super::super::replicas;
use super::*;

/// What is said of a workload with so many replicas, each with a device, where there are three; and whether all fit.
fn told(replicas: u32, more: Vec<Value>) -> (String, bool) {
    let mut objects = vec![
        node("a"),
        node("b"),
        class("true"),
        slice("a", json!([{"name": "x"}])),
        slice("b", json!([{"name": "x"}, {"name": "y"}])),
        dra(
            "ResourceClaimTemplate",
            "t",
            Some("default"),
            json!({"spec": {"devices": {"requests": [request(json!({}))]}}}),
        ),
    ];
    objects.extend(more);
    let snapshot = Snapshot {
        objects,
        namespace: "default".to_owned(),
        ..Snapshot::default()
    };
    let mut cluster = ClusterObjects::new(snapshot, "default".to_owned());
    let template = pod("unused", json!({"resourceClaimTemplateName": "t"}))["spec"].clone();
    let workload = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "template": {"spec": template}}});
    let added = cluster.add(vec![workload]).expect("added");
    let mut loaded = cluster.load(Config::default()).expect("it can be read");
    let mut out = Vec::new();
    let fits = replicas::explain(&mut loaded, &added.workloads[0], &mut out, false);
    (
        String::from_utf8(out).expect("UTF-8"),
        fits.expect("explained"),
    )
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
