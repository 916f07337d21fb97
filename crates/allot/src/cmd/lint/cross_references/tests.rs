use super::*;
use serde_json::json;

fn class(name: &str) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
        "metadata": {"name": name}, "spec": {}})
}

fn template(name: &str, class: &str) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": name}, "spec": {"spec": {"devices": {"requests": [
            {"name": "gpu", "exactly": {"deviceClassName": class}},
            {"name": "any", "firstAvailable": [{"name": "big", "deviceClassName": class}]}]}}}})
}

fn pod(template: &str, container: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "c", "image": "x", "resources": container}],
        "resourceClaims": [{"name": "devices", "resourceClaimTemplateName": template}]}})
}

/// The findings about all objects, one line each; `stored`: objects of the cluster, if it was looked at.
fn check(files: &[Value], stored: Option<&[Value]>, expected: &[&str]) {
    let snapshot = stored.map(|objects| Snapshot {
        objects: objects.to_vec(),
        ..Snapshot::default()
    });
    let across = CrossReferences::new(files.iter(), snapshot.as_ref(), "default");
    let found = files.iter().flat_map(|object| across.missing(object));
    let line = |m: Missing| {
        let sure = if m.sure { "missing" } else { "warning" };
        format!("{sure} {}: {}", m.field, m.text)
    };
    assert_eq!(found.map(line).collect::<Vec<_>>(), expected);
}

#[test]
fn what_is_there_is_not_reported() {
    let request = |name: &str| json!({"claims": [{"name": "devices", "request": name}]});
    for name in ["gpu", "any", "any/big"] {
        check(
            &[class("gpu"), template("t", "gpu"), pod("t", request(name))],
            None,
            &[],
        );
    }
    let files = [template("t", "gpu"), pod("t", json!({}))];
    check(&files, Some(&[class("gpu")]), &[]);
}

#[test]
fn missing_names_are_reported_with_a_suggestion() {
    let wrong = json!({"claims": [{"name": "device"}, {"name": "devices", "request": "gpus"}],
        "limits": {"deviceclass.resource.kubernetes.io/gqu": "1"}});
    check(
        &[
            class("gpu"),
            template("one", "gpu"),
            pod("on", json!({})),
            pod("one", wrong),
        ],
        None,
        &[
            "warning spec.resourceClaims[0].resourceClaimTemplateName: there is no ResourceClaimTemplate on in these files; did you mean one?",
            "missing spec.containers[0].resources.claims[0].name: the pod has no claim \"device\"; did you mean devices?",
            "missing spec.containers[0].resources.claims[1].request: claim \"devices\" has no request \"gpus\"; did you mean gpu?",
            "warning spec.containers[0].resources.limits: there is no DeviceClass gqu in these files; did you mean gpu?",
        ],
    );
}

#[test]
fn in_a_cluster_that_was_looked_at_it_is_certain() {
    check(
        &[template("t", "fpga")],
        Some(&[class("gpu")]),
        &[
            "missing spec.spec.devices.requests[0].exactly.deviceClassName: there is no DeviceClass fpga; there are: gpu",
            "missing spec.spec.devices.requests[1].firstAvailable[0].deviceClassName: there is no DeviceClass fpga; there are: gpu",
        ],
    );
}

#[test]
fn older_versions_and_workloads_are_looked_into() {
    let claim = json!({"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "r", "deviceClassName": "x"}]}}});
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"},
        "spec": {"hard": {"y.deviceclass.resource.k8s.io/devices": "1"}}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"template": {"spec": {"containers": [{"name": "c"}],
            "resourceClaims": [{"name": "a", "resourceClaimName": "absent"}]}}}});
    check(
        &[claim, quota, job],
        Some(&[]),
        &[
            "missing spec.devices.requests[0].deviceClassName: there is no DeviceClass x",
            "missing spec.hard: there is no DeviceClass y",
            "missing spec.template.spec.resourceClaims[0].resourceClaimName: there is no ResourceClaim absent; there are: c",
        ],
    );
}

#[test]
fn what_the_cluster_does_not_show_may_exist() {
    let mut snapshot = Snapshot::default();
    snapshot.about.hidden = vec![
        Hidden::new("deviceclasses.resource.k8s.io", "DeviceClass", None),
        Hidden::new(
            "resourceclaimtemplates.resource.k8s.io",
            "ResourceClaimTemplate",
            Some("default"),
        ),
    ];
    let mut elsewhere = pod("absent", json!({}));
    elsewhere["metadata"]["namespace"] = json!("other");
    let files = [template("t", "gpu"), pod("absent", json!({})), elsewhere];
    let across = CrossReferences::new(files.iter(), Some(&snapshot), "default");
    let found = files.iter().flat_map(|object| across.missing(object));
    let found: Vec<(bool, String)> = found.map(|m| (m.sure, m.text)).collect();
    let class = "there is no DeviceClass gpu in these files, and no right to list deviceclasses.resource.k8s.io";
    let template = "there is no ResourceClaimTemplate absent";
    let unseen = format!(
        "{template} in these files, and no right to list resourceclaimtemplates.resource.k8s.io"
    );
    let own = format!("{template}; there are: t");
    let expected = [
        (false, class.to_owned()),
        (false, class.to_owned()),
        (true, own),
        (false, unseen),
    ];
    assert_eq!(found, expected);
}
