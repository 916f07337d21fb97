use serde_json::json;

use super::*;

const NOW: &str = "2026-01-02T03:04:05.678Z";

fn check(kind: Kind, version: Version, mut given: Value, expected: Value) {
    default(kind, version, &mut given, NOW.parse().unwrap());
    assert_eq!(given, expected);
}

#[test]
fn requests_ask_for_one_device() {
    check(
        Kind::ResourceClaim,
        Version::V1,
        json!({"spec": {"devices": {"requests": [
            {"name": "a", "exactly": {"deviceClassName": "c"}},
            {"name": "b", "exactly": {"deviceClassName": "c", "allocationMode": "All"}},
            {"name": "c", "firstAvailable": [{"name": "x", "tolerations": [{"key": "k"}]}]},
            {"name": "d"},
        ]}}}),
        json!({"spec": {"devices": {"requests": [
            {"name": "a", "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}},
            {"name": "b", "exactly": {"deviceClassName": "c", "allocationMode": "All"}},
            {"name": "c", "firstAvailable": [{"name": "x", "allocationMode": "ExactCount", "count": 1, "tolerations": [{"key": "k", "operator": "Equal"}]}]},
            {"name": "d"},
        ]}}}),
    );
}

#[test]
fn a_v1beta1_request_without_class_stays_as_it_is() {
    check(
        Kind::ResourceClaimTemplate,
        Version::V1Beta1,
        json!({"spec": {"spec": {"devices": {"requests": [
            {"name": "a", "deviceClassName": "c"}, {"name": "b", "firstAvailable": [{"name": "x"}]}]}}}}),
        json!({"spec": {"spec": {"devices": {"requests": [
            {"name": "a", "deviceClassName": "c", "allocationMode": "ExactCount", "count": 1},
            {"name": "b", "firstAvailable": [{"name": "x", "allocationMode": "ExactCount", "count": 1}]}]}}}}),
    );
}

#[test]
fn tolerations_of_results_get_an_operator() {
    check(
        Kind::ResourceClaim,
        Version::V1,
        json!({"status": {"allocation": {"devices": {"results": [{"tolerations": [{"key": "k"}, {"operator": "Exists"}]}]}}}}),
        json!({"status": {"allocation": {"devices": {"results": [{"tolerations": [{"key": "k", "operator": "Equal"}, {"operator": "Exists"}]}]}}}}),
    );
}

#[test]
fn taints_get_a_time_in_whole_seconds() {
    let taints = |time: &str| json!([{"key": "a", "timeAdded": time}, {"key": "b", "timeAdded": "2020-01-01T00:00:00Z"}]);
    let mut given = taints("x");
    given[0].as_object_mut().unwrap().remove("timeAdded");
    check(
        Kind::ResourceSlice,
        Version::V1Beta1,
        json!({"spec": {"devices": [{"name": "d", "basic": {"taints": given}}]}}),
        json!({"spec": {"devices": [{"name": "d", "basic": {"taints": taints("2026-01-02T03:04:05Z")}}]}}),
    );
    check(
        Kind::DeviceTaintRule,
        Version::V1Alpha3,
        json!({"spec": {"taint": {"key": "k"}}}),
        json!({"spec": {"taint": {"key": "k", "timeAdded": "2026-01-02T03:04:05Z"}}}),
    );
}

#[test]
fn multipliers_and_limits_have_defaults() {
    check(
        Kind::ResourceSlice,
        Version::V1,
        json!({"spec": {"devices": [{"nodeAllocatableResourceMappings": {"cpu": {"capacityKey": "c"}, "memory": {"allocationMultiplier": "2"}}}]}}),
        json!({"spec": {"devices": [{"nodeAllocatableResourceMappings": {"cpu": {"capacityKey": "c", "allocationMultiplier": "1"}, "memory": {"allocationMultiplier": "2"}}}]}}),
    );
    check(
        Kind::ResourcePoolStatusRequest,
        Version::V1Alpha3,
        json!({"spec": {"driver": "d"}}),
        json!({"spec": {"driver": "d", "limit": 100}}),
    );
}
