use std::collections::BTreeSet;

use allot_apimachinery::field::Path;

use super::*;
use crate::validate::pod;

fn claims(claims: Value, expected: &[&str]) {
    let spec = json!({"resourceClaims": claims});
    assert_messages(
        pod::resource_claims(&Value::Null, &spec, &Path::new("spec")),
        expected,
    );
}

#[test]
fn a_claim_comes_from_one_place() {
    claims(
        json!([{"name": "a", "resourceClaimName": "x"}, {"name": "b", "resourceClaimTemplateName": "y"}]),
        &[],
    );
    claims(
        json!([{"name": "a", "resourceClaimName": "x", "resourceClaimTemplateName": "y"}, {"name": "b"}]),
        &[
            r#"spec.resourceClaims[0]: Invalid value: {"Name":"a","ResourceClaimName":"x","ResourceClaimTemplateName":"y"}: at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"#,
            r#"spec.resourceClaims[1]: Invalid value: {"Name":"b","ResourceClaimName":null,"ResourceClaimTemplateName":null}: must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"#,
        ],
    );
}

#[test]
fn claim_names_are_unique_labels() {
    let claim = |name: &str| json!({"name": name, "resourceClaimName": "x"});
    claims(
        json!([claim(""), claim("a.b"), claim("c"), claim("c")]),
        &[
            "spec.resourceClaims[0].name: Required value",
            r#"spec.resourceClaims[1].name: Invalid value: "a.b": must not contain dots"#,
            r#"spec.resourceClaims[3].name: Duplicate value: "c""#,
        ],
    );
    claims(
        json!([{"name": "a", "resourceClaimName": "X"}, {"name": "b", "resourceClaimTemplateName": ""}]),
        &[
            r#"spec.resourceClaims[0].resourceClaimName: Invalid value: "X": SUBDOMAIN"#,
            r#"spec.resourceClaims[1].resourceClaimTemplateName: Invalid value: "": SUBDOMAIN"#,
        ],
    );
}

#[test]
fn static_pods_have_no_claims() {
    let metadata = json!({"annotations": {"kubernetes.io/config.mirror": "x"}});
    let spec = json!({"resourceClaims": [{"name": "a", "resourceClaimName": "x"}]});
    let errors = pod::resource_claims(&metadata, &spec, &Path::new("spec"));
    assert_messages(
        errors,
        &["[]: Forbidden: static pods do not support resource claims"],
    );
    assert_messages(
        pod::resource_claims(&metadata, &json!({}), &Path::new("spec")),
        &[],
    );
}

#[test]
fn containers_use_claims_of_the_pod_once() {
    let check = |claims: Value, names: &[&str], expected: &[&str]| {
        let names: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
        assert_messages(
            pod::container_claims(claims.as_array().unwrap(), &names, &Path::new("claims")),
            expected,
        );
    };
    check(
        json!([{"name": "a"}, {"name": "b", "request": "x"}, {"name": "b", "request": "y"}]),
        &["a", "b"],
        &[],
    );
    check(
        json!([{"name": ""}, {"name": "a"}, {"name": "a", "request": "x"}, {"name": "b", "request": "x"}, {"name": "b", "request": "x"}, {"name": "b"}]),
        &["a", "b"],
        &[
            "claims[0]: Required value",
            r#"claims[2]: Duplicate value: "a""#,
            r#"claims[4]: Duplicate value: "b/x""#,
            r#"claims[5]: Duplicate value: "b""#,
        ],
    );
    check(
        json!([{"name": "c"}]),
        &["b", "a"],
        &[
            r#"claims[0]: Not found: "c": must be one of the names in pod.spec.resourceClaims: a, b"#,
        ],
    );
    check(
        json!([{"name": "c"}]),
        &[],
        &[
            r#"claims[0]: Not found: "c": must be one of the names in pod.spec.resourceClaims which is empty"#,
        ],
    );
}

#[test]
fn statuses_belong_to_claims_of_the_pod() {
    let spec = json!({"resourceClaims": [{"name": "a"}]});
    let status = json!({"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "X"}, {"name": "a"}, {"name": "b"}]});
    assert_messages(
        pod::resource_claim_statuses(&status, &spec, &Path::new("status")),
        &[
            r#"status.resourceClaimStatuses[0].resourceClaimName: Invalid value: "X": SUBDOMAIN"#,
            r#"status.resourceClaimStatuses[1].name: Duplicate value: "a""#,
            r#"status.resourceClaimStatuses[2].name: Invalid value: "b": must match the name of an entry in `spec.resourceClaims`"#,
        ],
    );
}

#[test]
fn extended_resources_map_to_containers() {
    let spec =
        json!({"containers": [{"name": "c", "resources": {"requests": {"example.com/gpu": "1"}}}]});
    let check = |status: Value, expected: &[&str]| {
        let status = json!({"extendedResourceClaimStatus": status});
        assert_messages(
            pod::extended_resource_claim_status(&status, &spec, &Path::new("status")),
            expected,
        );
    };
    let mapping = |container: &str, resource: &str| json!({"containerName": container, "resourceName": resource, "requestName": "r"});
    check(
        json!({"resourceClaimName": "x", "requestMappings": [mapping("c", "example.com/gpu")]}),
        &[],
    );
    check(
        json!({"requestMappings": []}),
        &[
            "status.extendedResourceClaimStatus.requestMappings: Required value: at least one request mapping is required",
            "status.extendedResourceClaimStatus.resourceClaimName: Required value",
        ],
    );
    check(
        json!({"resourceClaimName": "x", "requestMappings": [mapping("d", "example.com/gpu"), mapping("c", "example.com/nic")]}),
        &[
            r#"status.extendedResourceClaimStatus.requestMappings[0].containerName: Invalid value: "d": must match the name of an entry in spec.initContainers.name or spec.containers.name"#,
            r#"status.extendedResourceClaimStatus.requestMappings[1].resourceName: Invalid value: "example.com/nic": must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests"#,
        ],
    );
}

#[test]
fn health_is_reported_for_what_a_container_uses() {
    let containers = json!([{"name": "c", "resources": {"claims": [{"name": "a"}, {"name": "b", "request": "r"}], "requests": {"example.com/gpu": "1"}}}]);
    let check = |names: &[&str], expected: &[&str]| {
        let allocated: Vec<_> = names.iter().map(|name| json!({"name": name, "resources": [{"resourceID": "x", "health": "Healthy"}]})).collect();
        let statuses = json!([{"name": "c", "allocatedResourcesStatus": allocated}]);
        let path = Path::new("s");
        assert_messages(
            pod::allocated_resources_status(
                statuses.as_array().unwrap(),
                containers.as_array().unwrap(),
                &path,
            ),
            expected,
        );
    };
    check(&["claim:a", "claim:b/r", "example.com/gpu"], &[]);
    check(
        &["claim:b", "cpu"],
        &[
            r#"s[0].allocatedResourcesStatus[0].name: Invalid value: "claim:b": must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty"#,
            r#"s[0].allocatedResourcesStatus[1].name: Invalid value: "cpu": must match one of the container's resource requests"#,
        ],
    );
}

#[test]
fn node_allocatable_resources_are_those_of_a_claim_of_the_pod() {
    let spec = json!({"resourceClaims": [{"name": "a", "resourceClaimName": "direct"}]});
    let check = |entry: Value, expected: &[&str]| {
        let status = json!({
            "resourceClaimStatuses": [{"name": "b", "resourceClaimName": "generated"}],
            "nodeAllocatableResourceClaimStatuses": [entry],
        });
        let path = Path::new("status");
        assert_messages(
            pod::node_allocatable_statuses(&status, &spec, &path),
            expected,
        );
    };
    for name in ["direct", "generated"] {
        let entry =
            json!({"resourceClaimName": name, "containers": ["x"], "resources": {"cpu": "1"}});
        check(entry, &[]);
    }
    check(
        json!({"resourceClaimName": "", "resources": {"a.b/c": "-1"}}),
        &[
            "status.nodeAllocatableResourceClaimStatuses[0].resourceClaimName: Required value: must not be empty",
            r#"status.nodeAllocatableResourceClaimStatuses[0].resourceClaimName: Invalid value: "": no mapping found in pod reference"#,
            "status.nodeAllocatableResourceClaimStatuses[0].containers: Required value: must not be empty",
            r#"status.nodeAllocatableResourceClaimStatuses[0].resources[a.b/c]: Invalid value: "a.b/c": must be a node allocatable resource name"#,
            r#"status.nodeAllocatableResourceClaimStatuses[0].resources[a.b/c]: Invalid value: "-1": must be non-negative"#,
        ],
    );
}
