use serde_json::json;

use super::*;

const NOW: &str = "2026-01-02T03:04:05Z";

fn updated(kind: Kind, mut new: Value, old: &Value) -> Value {
    prepare_for_update(
        kind,
        &mut new,
        old,
        &Features::default(),
        NOW.parse().unwrap(),
    );
    new
}

#[test]
fn new_objects_start_afresh() {
    let mut claim =
        json!({"metadata": {"name": "c", "generation": 7}, "status": {"allocation": {}}});
    prepare_for_create(Kind::ResourceClaim, &mut claim, &Features::default());
    assert_eq!(
        claim,
        json!({"metadata": {"name": "c", "generation": 7}, "status": {}})
    );

    let mut class = json!({"metadata": {"name": "c"}, "spec": {}});
    prepare_for_create(Kind::DeviceClass, &mut class, &Features::default());
    assert_eq!(class["metadata"]["generation"], 1);

    let mut request = json!({"metadata": {}, "spec": {}, "status": {"poolCount": 1}});
    prepare_for_create(
        Kind::ResourcePoolStatusRequest,
        &mut request,
        &Features::default(),
    );
    assert_eq!(request, json!({"metadata": {}, "spec": {}}));
}

#[test]
fn the_generation_counts_changes_of_the_spec() {
    let slice = |spec: Value, generation: i64| json!({"metadata": {"generation": generation}, "spec": spec});
    let old = slice(json!({"driver": "d", "devices": []}), 3);
    let same = updated(Kind::ResourceSlice, slice(json!({"driver": "d"}), 9), &old);
    assert_eq!(same["metadata"]["generation"], 3);
    let other = updated(
        Kind::ResourceSlice,
        slice(json!({"driver": "d", "allNodes": true}), 0),
        &old,
    );
    assert_eq!(other["metadata"]["generation"], 4);
}

#[test]
fn an_update_keeps_the_status() {
    let old = json!({"metadata": {}, "spec": {}, "status": {"allocation": {}}});
    let new = json!({"metadata": {}, "spec": {}, "status": {}});
    assert_eq!(updated(Kind::ResourceClaim, new, &old), old);
}

#[test]
fn a_status_update_keeps_spec_and_metadata() {
    let old = json!({"metadata": {"labels": {"a": "b"}, "generation": 2}, "spec": {"x": 1}});
    let mut new = json!({
        "metadata": {"labels": {"c": "d"}, "finalizers": ["f"], "generation": 3, "resourceVersion": "5"},
        "spec": {"x": 2},
        "status": {"reservedFor": []},
    });
    prepare_for_status_update(Kind::ResourceClaim, &mut new, &old, &Features::default());
    let expected = json!({
        "metadata": {"labels": {"a": "b"}, "generation": 2, "resourceVersion": "5"},
        "spec": {"x": 1},
        "status": {"reservedFor": []},
    });
    assert_eq!(new, expected);
}

#[test]
fn the_time_of_a_taint_follows_its_effect() {
    let rule = |effect: &str, time: &str| json!({"metadata": {}, "spec": {"taint": {"effect": effect, "timeAdded": time}}, "status": {}});
    let old = rule("NoExecute", "2025-01-01T00:00:00Z");
    let time = |new: Value| {
        updated(Kind::DeviceTaintRule, new, &old)["spec"]["taint"]["timeAdded"].clone()
    };
    assert_eq!(time(rule("None", "2025-01-01T00:00:00Z")), NOW);
    assert_eq!(
        time(rule("None", "2025-02-02T00:00:00Z")),
        "2025-02-02T00:00:00Z"
    );
    assert_eq!(
        time(rule("NoExecute", "2025-01-01T00:00:00Z")),
        "2025-01-01T00:00:00Z"
    );
}

#[test]
fn the_status_of_deallocated_devices_goes_away() {
    let device = |name: &str| json!({"driver": "d", "pool": "p", "device": name});
    let list = |names: &[&str]| names.iter().map(|name| device(name)).collect::<Vec<_>>();
    let claim = |allocated: &[&str], reported: &[&str]| {
        let allocation = json!({"devices": {"results": list(allocated)}});
        json!({"metadata": {}, "spec": {}, "status": {"allocation": allocation, "devices": list(reported)}})
    };
    let old = claim(&["a", "b"], &["a", "b"]);
    let mut new = claim(&["a"], &["a", "b", "x"]);
    prepare_for_status_update(Kind::ResourceClaim, &mut new, &old, &Features::default());
    // A device that was never allocated is left for validation to refuse.
    assert_eq!(new["status"]["devices"], json!([device("a"), device("x")]));
    let mut new = json!({"metadata": {}, "spec": {}, "status": {"devices": [device("a")]}});
    prepare_for_status_update(Kind::ResourceClaim, &mut new, &old, &Features::default());
    assert_eq!(new["status"], json!({}));
}

/// A field of a disabled feature disappears from a new object and from an update of an object that does not use the
/// feature, but stays when the stored object uses it.
fn check_dropped(kind: Kind, feature: Feature, with: Value, without: Value) {
    let drop = |old: Option<&Value>, on: bool| {
        let mut value = with.clone();
        drop_disabled_fields(
            kind,
            &mut value,
            old,
            &Features::default().with(feature, on),
        );
        value
    };
    assert_eq!(drop(None, true), with, "{feature} is on");
    assert_eq!(drop(None, false), without, "{feature} is off");
    assert_eq!(
        drop(Some(&without), false),
        without,
        "{feature} is off and not in use"
    );
    assert_eq!(
        drop(Some(&with), false),
        with,
        "{feature} is off and in use"
    );
}

#[test]
fn fields_of_disabled_features_are_dropped_from_classes() {
    check_dropped(
        Kind::DeviceClass,
        Feature::DRAExtendedResource,
        json!({"spec": {"extendedResourceName": "example.com/gpu"}}),
        json!({"spec": {}}),
    );
}

#[test]
fn fields_of_disabled_features_are_dropped_from_claims() {
    let exact = |exactly: Value| json!({"devices": {"requests": [{"exactly": exactly}]}});
    let shared = |alternative: Value, constraint: Value| json!({"devices": {"requests": [{"firstAvailable": [alternative]}], "constraints": [constraint]}});
    let cases = [
        (
            Feature::DRADeviceTaints,
            exact(json!({"tolerations": [{"key": "k"}]})),
            exact(json!({})),
        ),
        (
            Feature::DRAAdminAccess,
            exact(json!({"adminAccess": true})),
            exact(json!({})),
        ),
        (
            Feature::DRAPrioritizedList,
            json!({"devices": {"requests": [{"name": "r", "firstAvailable": [{"name": "x"}]}]}}),
            json!({"devices": {"requests": [{"name": "r"}]}}),
        ),
        (
            Feature::DRAConsumableCapacity,
            shared(json!({"capacity": {}}), json!({"distinctAttribute": "a"})),
            shared(json!({}), json!({})),
        ),
    ];
    for (feature, with, without) in cases {
        check_dropped(
            Kind::ResourceClaim,
            feature,
            json!({"spec": with}),
            json!({"spec": without}),
        );
        let template = |spec: &Value| json!({"spec": {"spec": spec}});
        check_dropped(
            Kind::ResourceClaimTemplate,
            feature,
            template(&with),
            template(&without),
        );
    }
}

#[test]
fn fields_of_disabled_features_are_dropped_from_status() {
    let status = |result: Value| json!({"spec": {}, "status": {"allocation": {"devices": {"results": [result]}}}});
    let with_device = |result: Value, device: Value| {
        let mut claim = status(result);
        claim["status"]["devices"] = json!([device]);
        claim
    };
    let check = |feature, with, without| check_dropped(Kind::ResourceClaim, feature, with, without);
    check(
        Feature::DRAResourceClaimDeviceStatus,
        with_device(json!({}), json!({"driver": "d"})),
        status(json!({})),
    );
    check(
        Feature::DRAConsumableCapacity,
        with_device(
            json!({"shareID": "s", "consumedCapacity": {"m": "1"}}),
            json!({"shareID": "s"}),
        ),
        with_device(json!({}), json!({})),
    );
    check(
        Feature::DRADeviceBindingConditions,
        status(json!({"bindingConditions": ["a"], "bindingFailureConditions": ["b"]})),
        status(json!({})),
    );
}

#[test]
fn fields_of_disabled_features_are_dropped_from_slices() {
    let device = |device: &Value| json!({"spec": {"devices": [device]}});
    let cases = [
        (
            Feature::DRADeviceTaints,
            json!({"taints": [{"key": "k"}]}),
            json!({}),
        ),
        (
            Feature::DRAPartitionableDevices,
            json!({"consumesCounters": [{}], "nodeName": "n"}),
            json!({}),
        ),
        (
            Feature::DRADeviceBindingConditions,
            json!({"bindsToNode": true, "bindingConditions": ["a"], "bindingFailureConditions": ["b"]}),
            json!({}),
        ),
        (
            Feature::DRAConsumableCapacity,
            json!({"allowMultipleAllocations": true, "capacity": {"m": {"value": "1", "requestPolicy": {}}}}),
            json!({"capacity": {"m": {"value": "1"}}}),
        ),
        (
            Feature::DRAListTypeAttributes,
            json!({"attributes": {"a": {"ints": [1]}}}),
            json!({"attributes": {"a": {}}}),
        ),
        (
            Feature::DRANodeAllocatableResources,
            json!({"nodeAllocatableResourceMappings": {"cpu": {}}}),
            json!({}),
        ),
    ];
    for (feature, with, without) in cases {
        check_dropped(
            Kind::ResourceSlice,
            feature,
            device(&with),
            device(&without),
        );
    }
    check_dropped(
        Kind::ResourceSlice,
        Feature::DRAPartitionableDevices,
        json!({"spec": {"perDeviceNodeSelection": true, "sharedCounters": [{"name": "c"}]}}),
        json!({"spec": {}}),
    );
}
