use serde_json::json;

use super::*;

/// Migrates documents and compares the specs of the results and the notes.
fn check(documents: Value, slices: Value, objects: Value, notes: &[&str]) {
    let migration = migrate(
        documents.as_array().unwrap(),
        slices.as_array().unwrap(),
        Version::V1,
    );
    assert_eq!(Value::from(migration.objects), objects);
    let shown: Vec<_> = migration
        .notes
        .iter()
        .map(|note| format!("{}: {}: {}", note.document, note.path.join("."), note.text))
        .collect();
    assert_eq!(shown, notes);
}

fn v1(kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn classic(version: &str, kind: &str, name: &str, members: Value) -> Value {
    let mut object = json!({"apiVersion": format!("resource.k8s.io/{version}"), "kind": kind, "metadata": {"name": name}});
    object
        .as_object_mut()
        .unwrap()
        .extend(members.as_object().unwrap().clone());
    object
}

fn device_class(driver: &str) -> Value {
    json!({"selectors": [{"cel": {"expression": format!("device.driver == {driver:?}")}}]})
}

#[test]
fn newer_versions_change_their_form_only() {
    check(
        json!([
            {"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "r", "deviceClassName": "g"}]}}},
            {"apiVersion": "resource.k8s.io/v1alpha3", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": {"devices": [{"name": "d", "basic": {"capacity": {"m": "1Gi"}}}]}},
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}},
        ]),
        json!([]),
        json!([
            v1("ResourceClaim", "c", json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "g"}}]}})),
            v1("ResourceSlice", "s", json!({"devices": [{"name": "d", "capacity": {"m": {"value": "1Gi"}}}]})),
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}},
        ]),
        &[],
    );
}

#[test]
fn kinds_that_are_not_in_v1_go_to_their_newest_version() {
    let rule = classic(
        "v1alpha3",
        "DeviceTaintRule",
        "r",
        json!({"spec": {"taint": {"key": "k"}}}),
    );
    let mut expected = rule.clone();
    expected["apiVersion"] = json!("resource.k8s.io/v1beta2");
    check(json!([rule]), json!([]), json!([expected]), &[]);
}

#[test]
fn what_is_left_of_controllers_in_v1alpha3_is_told() {
    let claim = classic(
        "v1alpha3",
        "ResourceClaim",
        "c",
        json!({"spec": {"controller": "d", "devices": {"requests": []}}}),
    );
    check(
        json!([claim]),
        json!([]),
        json!([v1(
            "ResourceClaim",
            "c",
            json!({"devices": {"requests": []}})
        )]),
        &[
            "0: spec.controller: allocation by a driver's controller is gone; the scheduler allocates",
        ],
    );
}

#[test]
fn pods_lose_the_source_around_their_claims() {
    let pod = |claim: Value| json!({"apiVersion": "v1", "kind": "Pod", "spec": {"resourceClaims": [claim]}});
    let job = |claim: Value| json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": {"resourceClaims": [claim]}}}});
    let old = json!({"name": "a", "source": {"resourceClaimTemplateName": "t"}});
    let new = json!({"name": "a", "resourceClaimTemplateName": "t"});
    check(
        json!([pod(old.clone()), job(old)]),
        json!([]),
        json!([pod(new.clone()), job(new)]),
        &[],
    );
}

#[test]
fn a_class_and_a_claim_take_their_parameters_along() {
    let parameters = json!({"apiVersion": "cats.example.com/v1", "kind": "ClaimParameters", "metadata": {"name": "large", "uid": "u"}, "spec": {"size": "large"}});
    let inlined = json!({"apiVersion": "cats.example.com/v1", "kind": "ClaimParameters", "metadata": {"name": "large"}, "spec": {"size": "large"}});
    check(
        json!([
            classic(
                "v1alpha1",
                "ResourceClass",
                "cats",
                json!({"driverName": "d.example.com"})
            ),
            parameters,
            classic(
                "v1alpha1",
                "ResourceClaimTemplate",
                "t",
                json!({"spec": {"spec": {
                "resourceClassName": "cats", "parametersRef": {"apiGroup": "cats.example.com", "kind": "ClaimParameters", "name": "large"}}}})
            ),
        ]),
        json!([]),
        json!([
            v1("DeviceClass", "cats", device_class("d.example.com")),
            parameters,
            v1(
                "ResourceClaimTemplate",
                "t",
                json!({"spec": {"devices": {
                    "requests": [{"name": "device", "exactly": {"deviceClassName": "cats"}}],
                    "config": [{"opaque": {"driver": "d.example.com", "parameters": inlined}}],
                }}})
            ),
        ]),
        &[],
    );
}

#[test]
fn what_cannot_be_found_is_told() {
    check(
        json!([
            classic(
                "v1alpha2",
                "ResourceClass",
                "c",
                json!({"driverName": "d.example.com", "suitableNodes": {}, "parametersRef": {"kind": "ConfigMap", "name": "m", "namespace": "n"}})
            ),
            classic(
                "v1alpha2",
                "ResourceClaim",
                "x",
                json!({"spec": {"resourceClassName": "other", "allocationMode": "Immediate", "parametersRef": {"kind": "ConfigMap", "name": "m"}}})
            ),
            classic("v1alpha2", "PodSchedulingContext", "p", json!({})),
        ]),
        json!([]),
        json!([
            v1("DeviceClass", "c", device_class("d.example.com")),
            v1(
                "ResourceClaim",
                "x",
                json!({"devices": {"requests": [{"name": "device", "exactly": {"deviceClassName": "other"}}]}})
            ),
        ]),
        &[
            "0: suitableNodes: v1 classes do not choose nodes; give the driver's ResourceSlices a nodeSelector",
            "0: parametersRef: ConfigMap m is not among the files; its content has to stand in the v1 object",
            "1: spec.allocationMode: claims are allocated when the first pod uses them; there is no Immediate mode",
            "1: spec.parametersRef: class other is not among the files; the driver of ConfigMap m is not known",
            "2: kind: negotiation between scheduler and drivers is gone; the object is left out",
        ],
    );
}

#[test]
fn structured_parameters_become_requests() {
    let parameters = classic(
        "v1alpha2",
        "ResourceClaimParameters",
        "p",
        json!({
            "generatedFrom": {"apiGroup": "g.example.com", "kind": "Gpu", "name": "two"},
            "shareable": true,
            "driverRequests": [{
                "driverName": "d.example.com",
                "vendorParameters": {"mode": "fast"},
                "requests": [
                    {"namedResources": {"selector": "\"model\" in attributes.string && attributes.string[\"model\"] == \"a\""}, "vendorParameters": {"x": 1}},
                    {"namedResources": {"selector": "attributes.quantity.memory.compareTo(quantity(\"1Gi\")) >= 0"}},
                    {"namedResources": {"selector": "true"}},
                ],
            }],
        }),
    );
    let claim = classic(
        "v1alpha2",
        "ResourceClaim",
        "c",
        json!({"spec": {"resourceClassName": "k", "parametersRef": {"apiGroup": "g.example.com", "kind": "Gpu", "name": "two"}}}),
    );
    let request = |name: &str, selector: &str| json!({"name": name, "exactly": {"deviceClassName": "k", "selectors": [{"cel": {"expression": selector}}]}});
    let config = |requests: Value, parameters: Value| json!({"requests": requests, "opaque": {"driver": "d.example.com", "parameters": parameters}});
    check(
        json!([parameters, claim]),
        json!([]),
        json!([v1(
            "ResourceClaim",
            "c",
            json!({"devices": {
                "requests": [
                    request("device-0", r#""model" in device.attributes["d.example.com"] && device.attributes["d.example.com"].model == "a""#),
                    request("device-1", r#"device.capacity["d.example.com"].memory.compareTo(quantity("1Gi")) >= 0"#),
                    {"name": "device-2", "exactly": {"deviceClassName": "k"}},
                ],
                "config": [
                    config(json!(["device-0"]), json!({"x": 1})),
                    config(json!(["device-0", "device-1", "device-2"]), json!({"mode": "fast"})),
                ],
            }})
        )]),
        &[],
    );
}

#[test]
fn selectors_without_a_new_form_are_told() {
    let class = |selector: &str| {
        json!([
            classic(
                "v1alpha2",
                "ResourceClass",
                "c",
                json!({"driverName": "d", "parametersRef": {"apiGroup": "resource.k8s.io", "kind": "ResourceClassParameters", "name": "p"}})
            ),
            classic(
                "v1alpha2",
                "ResourceClassParameters",
                "p",
                json!({"filters": [{"driverName": "d", "namedResources": {"selector": selector}}]})
            ),
        ])
    };
    let told = |selector: &str, reason: &str| {
        let note = format!("0: parametersRef: selector {selector:?}: {reason}");
        check(
            class(selector),
            json!([]),
            json!([v1("DeviceClass", "c", device_class("d"))]),
            &[&note],
        );
    };
    told(
        r#"attributes.string["a.b"] == "x""#,
        r#""a.b" is not a valid name of an attribute in v1"#,
    );
    told(
        r#"attributes.stringslice["a"].exists(s, s == "x")"#,
        "list-valued attributes need the feature DRAListTypeAttributes",
    );
    told(
        "attributes.int.all(k, true)",
        "uses a whole map of attributes, which are no longer kept by type",
    );
}

#[test]
fn published_slices_tell_names() {
    let class = json!([
        classic(
            "v1alpha2",
            "ResourceClass",
            "c",
            json!({"driverName": "d", "parametersRef": {"apiGroup": "resource.k8s.io", "kind": "ResourceClassParameters", "name": "p"}})
        ),
        classic(
            "v1alpha2",
            "ResourceClassParameters",
            "p",
            json!({"filters": [{"driverName": "d", "namedResources": {"selector": "attributes.string[\"a.b\"] == \"x\""}}]})
        ),
    ]);
    let slices = json!([v1(
        "ResourceSlice",
        "s",
        json!({"driver": "d", "devices": [{"name": "x", "attributes": {"a_b": {"string": "x"}}}]})
    )]);
    let mut spec = device_class("d");
    spec["selectors"]
        .as_array_mut()
        .unwrap()
        .push(json!({"cel": {"expression": r#"device.attributes["d"].a_b == "x""#}}));
    check(class, slices, json!([v1("DeviceClass", "c", spec)]), &[]);
}

#[test]
fn named_resources_become_devices() {
    let slice = |name: &str| {
        classic(
            "v1alpha2",
            "ResourceSlice",
            name,
            json!({
        "nodeName": "n", "driverName": "d", "namedResources": {"instances": [{"name": "gpu.0", "attributes": [
            {"name": "model", "string": "a"}, {"name": "memory", "quantity": "1Gi"}, {"name": "ids", "intSlice": {"ints": [1]}}]}]}}),
        )
    };
    let expected = |name: &str| {
        v1(
            "ResourceSlice",
            name,
            json!({
        "driver": "d", "nodeName": "n", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 2},
        "devices": [{"name": "gpu-0", "attributes": {"model": {"string": "a"}}, "capacity": {"memory": {"value": "1Gi"}}}]}),
        )
    };
    check(
        json!([slice("a"), slice("b")]),
        json!([]),
        json!([expected("a"), expected("b")]),
        &[
            "0: namedResources.instances.0.name: device names have no dots; gpu.0 becomes gpu-0",
            "0: namedResources.instances.0.attributes.ids: list-valued attributes need the feature DRAListTypeAttributes",
            "1: namedResources.instances.0.name: device names have no dots; gpu.0 becomes gpu-0",
            "1: namedResources.instances.0.attributes.ids: list-valued attributes need the feature DRAListTypeAttributes",
        ],
    );
}
