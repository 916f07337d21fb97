use serde_json::json;

use super::*;

/// Converts v1beta1 to v1 and back, expecting `hub` in between and the first form again.
fn check(kind: Kind, old: Value, hub: Value) {
    let there = convert(kind, Version::V1Beta1, Version::V1, old.clone()).unwrap();
    assert_eq!(there["spec"], hub["spec"]);
    assert_eq!(there["apiVersion"], "resource.k8s.io/v1");
    let back = convert(kind, Version::V1, Version::V1Beta1, there).unwrap();
    assert_eq!(back["spec"], old["spec"]);
}

#[test]
fn flat_requests_become_exact_ones() {
    check(
        Kind::ResourceClaim,
        json!({"spec": {"devices": {"requests": [
            {"name": "a", "deviceClassName": "c", "count": 2, "adminAccess": false, "capacity": {"requests": {"m": "1"}}},
            {"name": "b", "deviceClassName": "", "firstAvailable": [{"name": "x", "deviceClassName": "c"}]},
        ]}}}),
        json!({"spec": {"devices": {"requests": [
            {"name": "a", "exactly": {"deviceClassName": "c", "count": 2, "adminAccess": false, "capacity": {"requests": {"m": "1"}}}},
            {"name": "b", "firstAvailable": [{"name": "x", "deviceClassName": "c"}]},
        ]}}}),
    );
}

#[test]
fn templates_convert_like_claims() {
    check(
        Kind::ResourceClaimTemplate,
        json!({"spec": {"metadata": {"labels": {"a": "b"}}, "spec": {"devices": {"requests": [{"name": "a", "deviceClassName": "c"}]}}}}),
        json!({"spec": {"metadata": {"labels": {"a": "b"}}, "spec": {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "c"}}]}}}}),
    );
}

#[test]
fn basic_devices_become_flat() {
    check(
        Kind::ResourceSlice,
        json!({"spec": {"driver": "d", "devices": [{"name": "x", "basic": {"attributes": {"a": {"int": 1}}, "nodeName": "n"}}, {"name": "y", "basic": {}}]}}),
        json!({"spec": {"driver": "d", "devices": [{"name": "x", "attributes": {"a": {"int": 1}}, "nodeName": "n"}, {"name": "y"}]}}),
    );
}

#[test]
fn unknown_members_survive() {
    check(
        Kind::ResourceClaim,
        json!({"spec": {"devices": {"requests": [{"name": "a", "deviceClassName": "c", "fromTheFuture": {"x": 1}}]}}}),
        json!({"spec": {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "c", "fromTheFuture": {"x": 1}}}]}}}),
    );
}

#[test]
fn a_false_in_v1_is_lost_in_v1beta1() {
    let slice = json!({"spec": {"nodeName": "", "allNodes": false}});
    let slice = convert(Kind::ResourceSlice, Version::V1, Version::V1Beta1, slice).unwrap();
    assert_eq!(slice["spec"], json!({}));
}

#[test]
fn v1alpha3_has_plain_capacities() {
    let old = json!({"spec": {"devices": [{"name": "d", "basic": {"capacity": {"m": "1Gi"}}}]}});
    let hub = convert(
        Kind::ResourceSlice,
        Version::V1Alpha3,
        Version::V1,
        old.clone(),
    )
    .unwrap();
    assert_eq!(
        hub["spec"]["devices"],
        json!([{"name": "d", "capacity": {"m": {"value": "1Gi"}}}])
    );
    let back = convert(Kind::ResourceSlice, Version::V1, Version::V1Alpha3, hub).unwrap();
    assert_eq!(back["spec"], old["spec"]);
    let claim = json!({"spec": {"controller": "c", "devices": {"requests": [{"name": "r", "deviceClassName": "k"}]}}});
    let hub = convert(
        Kind::ResourceClaim,
        Version::V1Alpha3,
        Version::V1,
        claim.clone(),
    )
    .unwrap();
    let back = convert(Kind::ResourceClaim, Version::V1, Version::V1Alpha3, hub).unwrap();
    assert_eq!(back["spec"], claim["spec"]);
}

#[test]
fn versions_a_kind_does_not_have_are_refused() {
    let error = convert(
        Kind::ResourcePoolStatusRequest,
        Version::V1Alpha3,
        Version::V1,
        json!({}),
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "ResourcePoolStatusRequest does not exist in resource.k8s.io/v1"
    );
    assert!(convert(Kind::DeviceClass, Version::V1, Version::V1, json!([])).is_err());
}

#[test]
fn the_canonical_form_is_that_of_upstream() {
    let mut claim = json!({
        "metadata": {"name": "c", "labels": {}, "creationTimestamp": null},
        "spec": {"devices": {"requests": [], "constraints": []}},
        "status": {"devices": [], "allocation": {"allocationTimestamp": "2024-05-06T09:08:09.5+02:00"}},
    });
    normalize(Kind::ResourceClaim, &mut claim);
    let expected = json!({
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": null}},
        "status": {"allocation": {"devices": {}, "allocationTimestamp": "2024-05-06T07:08:09Z"}},
    });
    assert_eq!(claim, expected);
    normalize(Kind::ResourceClaim, &mut claim);
    assert_eq!(claim, expected);
}

#[test]
fn quantities_become_canonical() {
    let mut slice = json!({"spec": {"driver": "d", "devices": [
        {"name": "x", "capacity": {"m": {"value": "1.5Gi", "requestPolicy": {"validValues": ["1000m"]}}, "n": {"value": 5}}}]}});
    normalize(Kind::ResourceSlice, &mut slice);
    assert_eq!(
        slice["spec"]["devices"][0]["capacity"],
        json!({"m": {"value": "1536Mi", "requestPolicy": {"default": null, "validValues": ["1"]}}, "n": {"value": "5"}})
    );
    assert_eq!(
        slice["spec"]["pool"],
        json!({"name": "", "generation": 0, "resourceSliceCount": 0})
    );
}
