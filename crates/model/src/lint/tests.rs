use super::*;

fn check(minor: u8, document: Value, expected: &[&str]) {
    let findings = lint(
        &document,
        Release::new(minor),
        &[],
        "2026-01-01T00:00:00Z".parse().unwrap(),
    );
    let shown: Vec<_> = findings
        .iter()
        .map(|finding| format!("{:?} {}: {}", finding.effect, finding.field, finding.text))
        .collect();
    assert_eq!(shown, expected);
}

fn claim(version: &str, request: Value) -> Value {
    json!({
        "apiVersion": format!("resource.k8s.io/{version}"), "kind": "ResourceClaim",
        "metadata": {"generateName": "c-"}, "spec": {"devices": {"requests": [request]}},
    })
}

#[test]
fn a_good_claim_has_no_findings() {
    check(
        36,
        claim(
            "v1",
            json!({"name": "r", "exactly": {"deviceClassName": "g"}}),
        ),
        &[],
    );
}

#[test]
fn versions_that_do_not_exist_are_refused() {
    check(
        32,
        claim("v1", json!({})),
        &[
            "Refused apiVersion: 1.32 does not know ResourceClaim in v1; it has ResourceClaim in v1beta1",
        ],
    );
    check(
        26,
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"}),
        &["Refused apiVersion: 1.26 does not know DeviceClass in v1; it has no DeviceClass"],
    );
}

/// `did you mean ResourceClaim?`, of manifests of classic DRA.
#[test]
fn regression_the_successors_of_classic_kinds_are_named() {
    for (kind, successor) in [
        ("ResourceClass", "; a DeviceClass takes its place"),
        (
            "ResourceClaimParameters",
            "; parameters are in spec.devices.config of a claim, or spec.config of a DeviceClass",
        ),
        (
            "PodSchedulingContext",
            "; nothing takes its place: the scheduler allocates without asking drivers",
        ),
        ("ResourceClam", "; did you mean ResourceClaim?"),
    ] {
        let text = format!(
            "Refused apiVersion: 1.36 does not know {kind} in v1alpha2; it has no {kind}{successor}"
        );
        check(
            36,
            json!({"apiVersion": "resource.k8s.io/v1alpha2", "kind": kind}),
            &[&text],
        );
    }
}

#[test]
fn fields_of_later_features_are_dropped() {
    let request = json!({"name": "r", "exactly": {"deviceClassName": "g", "tolerations": [{"operator": "Exists"}], "capacity": {}}});
    check(
        34,
        claim("v1", request.clone()),
        &[
            "Dropped spec.devices.requests[0].exactly.tolerations: needs the feature DRADeviceTaints, which is alpha and off in 1.34",
            "Dropped spec.devices.requests[0].exactly.capacity: needs the feature DRAConsumableCapacity, which is alpha and off in 1.34",
        ],
    );
    check(36, claim("v1", request), &[]);
    check(
        32,
        claim(
            "v1beta1",
            json!({"name": "r", "deviceClassName": "g", "firstAvailable": [], "tolerations": [{"operator": "Exists"}]}),
        ),
        &[
            "Warning apiVersion: not served unless the API server runs with --runtime-config=resource.k8s.io/v1beta1=true",
            "Dropped spec.devices.requests[0].firstAvailable: 1.32 does not know the field (DRAPrioritizedList); kubectl refuses it",
            "Dropped spec.devices.requests[0].tolerations: 1.32 does not know the field (DRADeviceTaints); kubectl refuses it",
        ],
    );
}

#[test]
fn a_version_that_the_cluster_serves_needs_no_request() {
    let document = claim("v1beta1", json!({"name": "r", "deviceClassName": "g"}));
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    let served = |versions: &[&str]| {
        let versions: Vec<String> = versions.iter().map(|&it| it.to_owned()).collect();
        lint(&document, Release::new(32), &versions, now).len()
    };
    assert_eq!(served(&["v1alpha3"]), 1);
    assert_eq!(served(&["v1alpha3", "v1beta1"]), 0);
}

#[test]
fn mistakes_are_refused_with_the_servers_words() {
    check(
        36,
        claim(
            "v1",
            json!({"name": "r", "exactly": {"deviceClassName": "g", "adminAccess": true, "colour": "red", "count": -1}}),
        ),
        &[
            "Dropped spec.devices.requests[0].exactly.colour: not a known field; kubectl refuses it",
            "Refused spec.devices.requests[0].exactly.count: Invalid value: -1: must be greater than zero",
            "Warning spec.devices.requests[0].adminAccess: only works in a namespace with the label resource.kubernetes.io/admin-access=true",
        ],
    );
}

#[test]
fn pods_need_the_form_of_their_release() {
    let pod = |claim: Value| json!({"apiVersion": "v1", "kind": "Pod", "spec": {"resourceClaims": [claim]}});
    check(
        30,
        pod(json!({"name": "a", "source": {"resourceClaimName": "x"}})),
        &[],
    );
    check(
        30,
        pod(json!({"name": "a", "resourceClaimName": "x"})),
        &["Dropped spec.resourceClaims[0].resourceClaimName: up to 1.30 it stands inside `source`"],
    );
    check(
        36,
        pod(json!({"name": "a", "source": {"resourceClaimName": "x"}})),
        &[
            "Dropped spec.resourceClaims[0].source: from 1.31 on its members stand in the claim itself",
        ],
    );
}
