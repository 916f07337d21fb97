use std::sync::Arc;

use serde_json::{Value, json};

use super::*;

/// What keeps a pod `ns/p` waiting that has these volumes, with the claims there are.
fn check(volumes: Value, claims: &[Value], expected: Option<&str>) {
    let pod = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "uid-p"},
        "spec": {"containers": [], "volumes": volumes},
    });
    let pod = PodInfo::new(Arc::new(serde_json::from_value(pod).expect("a pod")));
    let known = claims.iter().map(|claim| {
        let claim: PersistentVolumeClaim = serde_json::from_value(claim.clone()).expect("a claim");
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        (Key::new("ns", name), VolumeClaim::new(&claim))
    });
    let found = pre_filter(&pod, &known.collect()).err();
    assert_eq!(
        found.as_ref().map(|r| &*r.reasons[0]),
        expected,
        "{volumes}"
    );
}

#[test]
fn claims_have_to_be_there() {
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "x"}}]);
    let not_found = r#"persistentvolumeclaim "x" not found"#;
    check(volumes.clone(), &[], Some(not_found));
    check(
        volumes.clone(),
        &[json!({"metadata": {"name": "y"}})],
        Some(not_found),
    );
    check(volumes.clone(), &[json!({"metadata": {"name": "x"}})], None);
    let going = json!({"metadata": {"name": "x", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
    check(
        volumes.clone(),
        &[going],
        Some(r#"persistentvolumeclaim "x" is being deleted"#),
    );
    let lost = json!({"metadata": {"name": "x"}, "spec": {"volumeName": "pv"}, "status": {"phase": "Lost"}});
    check(
        volumes,
        &[lost],
        Some(r#"persistentvolumeclaim "x" bound to non-existent persistentvolume "pv""#),
    );
    check(json!([{"name": "v", "emptyDir": {}}]), &[], None);
}

#[test]
fn claims_of_ephemeral_volumes_belong_to_the_pod() {
    let volumes = json!([{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]);
    check(
        volumes.clone(),
        &[],
        Some(
            r#"waiting for ephemeral volume controller to create the persistentvolumeclaim "p-v""#,
        ),
    );
    let of = |uid: &str| {
        let owner =
            json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": true});
        json!({"metadata": {"name": "p-v", "ownerReferences": [owner]}})
    };
    check(volumes.clone(), &[of("uid-p")], None);
    check(
        volumes,
        &[of("uid-q")],
        Some("PVC ns/p-v was not created for pod ns/p (pod is not owner)"),
    );
}
