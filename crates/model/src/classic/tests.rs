use serde_json::json;

use super::*;

fn messages(errors: &[allot_apimachinery::field::Error]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

fn claim() -> Value {
    json!({
        "metadata": {"name": "c", "namespace": "n", "resourceVersion": "1"},
        "spec": {"resourceClassName": "k", "allocationMode": "Immediate"},
        "status": {},
    })
}

fn with_status(status: Value) -> Value {
    let mut claim = claim();
    claim["status"] = status;
    claim
}

#[test]
fn claims_wait_for_their_first_consumer() {
    let mut claim = json!({"spec": {"resourceClassName": "k"}});
    default(Kind::ResourceClaim, &mut claim);
    assert_eq!(claim["spec"]["allocationMode"], "WaitForFirstConsumer");
    let mut template = json!({"spec": {"spec": {"allocationMode": "Immediate"}}});
    default(Kind::ResourceClaimTemplate, &mut template);
    assert_eq!(template["spec"]["spec"]["allocationMode"], "Immediate");
}

#[test]
fn classes_and_claims_are_well_formed() {
    let class = json!({
        "metadata": {"name": "k"}, "driverName": "d.example.com",
        "parametersRef": {"apiGroup": "g", "kind": "", "name": "", "namespace": "A"}, "suitableNodes": {},
    });
    let errors = messages(&create(Kind::ResourceClass, &class));
    assert_eq!(
        errors[..2],
        [
            "parametersRef.kind: Required value",
            "parametersRef.name: Required value"
        ]
    );
    assert!(errors[2].starts_with("parametersRef.namespace: Invalid value: \"A\""));
    assert_eq!(
        errors[3..],
        [
            "suitableNodes.nodeSelectorTerms: Required value: must have at least one node selector term"
        ]
    );

    let mut claim = claim();
    claim["spec"] = json!({"resourceClassName": "", "allocationMode": "Later"});
    let errors = messages(&create(Kind::ResourceClaim, &claim));
    assert!(errors[0].starts_with(
        "spec.resourceClassName: Invalid value: \"\": a lowercase RFC 1123 subdomain"
    ));
    assert_eq!(
        errors[1..],
        [
            r#"spec.allocationMode: Unsupported value: "Later": supported values: "Immediate", "WaitForFirstConsumer""#
        ]
    );
}

#[test]
fn specs_are_immutable() {
    let mut new = claim();
    new["spec"]["allocationMode"] = json!("WaitForFirstConsumer");
    assert_eq!(
        messages(&update(Kind::ResourceClaim, &new, &claim())),
        [
            r#"spec: Invalid value: {"ResourceClassName":"k","ParametersRef":null,"AllocationMode":"WaitForFirstConsumer"}: field is immutable"#
        ]
    );
    assert!(update(Kind::ResourceClaim, &claim(), &claim()).is_empty());
}

/// Checks a status that replaces another one.
fn check_status(new: Value, old: Value, expected: &[&str]) {
    assert_eq!(
        messages(&status_update(
            Kind::ResourceClaim,
            &with_status(new),
            &with_status(old)
        )),
        expected
    );
}

#[test]
fn the_invariants_of_the_status_hold() {
    let pod = |uid: &str| json!({"resource": "pods", "name": "p", "uid": uid});
    let allocated = json!({"driverName": "d", "allocation": {}});
    let reserved = |pods: Value| json!({"driverName": "d", "allocation": {}, "reservedFor": pods});
    let requested = json!({"driverName": "d", "allocation": {}, "deallocationRequested": true});
    check_status(reserved(json!([pod("u")])), json!({}), &[]);
    check_status(
        json!({"allocation": {}}),
        json!({}),
        &["status.driverName: Required value: must be specified when `allocation` is set"],
    );
    check_status(
        json!({"reservedFor": [pod("u")]}),
        json!({}),
        &["status.reservedFor: Forbidden: may not be specified when `allocated` is not set"],
    );
    check_status(
        reserved(json!([pod("u"), pod("v")])),
        json!({}),
        &["status.reservedFor: Forbidden: may not be reserved more than once"],
    );
    check_status(
        json!({"driverName": "d", "allocation": {"shareable": true}, "reservedFor": [pod("u"), pod("v")]}),
        json!({}),
        &[],
    );
    check_status(
        json!({"driverName": "d", "allocation": {"shareable": true}}),
        allocated.clone(),
        &[
            r#"status.allocation: Invalid value: {"ResourceHandle":"","ResourceHandles":null,"AvailableOnNodes":null,"Shareable":true}: field is immutable"#,
        ],
    );
    check_status(requested.clone(), allocated.clone(), &[]);
    let mut both = requested.clone();
    both["reservedFor"] = json!([pod("u")]);
    check_status(
        both,
        reserved(json!([pod("u")])),
        &[
            "status.deallocationRequested: Forbidden: deallocation cannot be requested while `reservedFor` is set",
        ],
    );
    check_status(
        json!({"deallocationRequested": true}),
        requested.clone(),
        &["status: Forbidden: `allocation` must be set when `deallocationRequested` is set"],
    );
    check_status(
        allocated,
        requested.clone(),
        &["status.deallocationRequested: Forbidden: may not be cleared when `allocation` is set"],
    );
    check_status(json!({}), requested, &[]);
}

#[test]
fn consumers_and_handles_are_limited() {
    let pods: Vec<_> = (0..33)
        .map(|index| json!({"resource": "pods", "name": "p", "uid": index.to_string()}))
        .collect();
    check_status(
        json!({"driverName": "d", "allocation": {"shareable": true, "resourceHandle": "x".repeat(16385)}, "reservedFor": pods}),
        json!({}),
        &[
            "status.allocation.resourceHandle: Too long: may not be longer than 16384",
            "status.reservedFor: Too long: may not be longer than 32",
        ],
    );
    check_status(
        json!({"driverName": "d", "allocation": {"resourceHandles": [{"driverName": "", "data": "x", "structuredData": {"results": [{}]}}]}}),
        json!({}),
        &[
            "status.allocation.resourceHandles[0].driverName: Required value",
            "status.allocation.resourceHandles[0].structuredData.results[0]: Required value: exactly one structured model field must be set",
            "status.allocation.resourceHandles[0]: Invalid value: null: data and structuredData are mutually exclusive",
        ],
    );
}

#[test]
fn negotiation_names_nodes_once() {
    let context = |spec: Value, status: Value| json!({"metadata": {"name": "p", "namespace": "n", "resourceVersion": "1"}, "spec": spec, "status": status});
    let kind = Kind::PodSchedulingContext;
    assert_eq!(
        messages(&create(
            kind,
            &context(json!({"potentialNodes": ["a", "a"]}), json!({}))
        )),
        [r#"spec.potentialNodes[1]: Duplicate value: "a""#]
    );
    let many: Vec<_> = (0..129).map(|index| format!("n{index}")).collect();
    assert_eq!(
        messages(&create(
            kind,
            &context(json!({"potentialNodes": many}), json!({}))
        )),
        ["spec.potentialNodes: Too long: may not be longer than 128"]
    );
    let new = context(
        json!({}),
        json!({"resourceClaims": [{"name": "c", "unsuitableNodes": ["a", "a"]}, {"name": "c"}]}),
    );
    assert_eq!(
        messages(&status_update(kind, &new, &context(json!({}), json!({})))),
        [
            r#"status.resourceClaims[0].unsuitableNodes[1]: Duplicate value: "a""#,
            r#"status.resourceClaims[1]: Duplicate value: "c""#,
        ]
    );
}

#[test]
fn named_resources_are_well_formed() {
    let slice = json!({"metadata": {"name": "s"}, "driverName": "d", "nodeName": "n", "namedResources": {"instances": [
        {"name": "a.b", "attributes": [{"name": "x", "int": 1}, {"name": "x"}, {"name": "y", "int": 1, "bool": true}, {"name": "z", "version": "v1"}]},
        {"name": "a.b"},
    ]}});
    let path = "namedResources.instances";
    assert_eq!(
        messages(&create(Kind::ResourceSlice, &slice)),
        [
            format!("{path}[0].attributes[1].name: Duplicate value: \"x\""),
            format!("{path}[0].attributes[1]: Required value: exactly one value must be set"),
            format!(
                "{path}[0].attributes[2]: Invalid value: \"{{bool, int}}\": exactly one field must be set, not several"
            ),
            format!(
                "{path}[0].attributes[3].version: Invalid value: \"v1\": must be a string compatible with semver.org spec 2.0.0"
            ),
            format!("{path}[1].name: Duplicate value: \"a.b\""),
        ]
    );
    let mut other = slice.clone();
    other["metadata"]["resourceVersion"] = json!("1");
    other["namedResources"]["instances"] = json!([]);
    let old = other.clone();
    other["nodeName"] = json!("m");
    assert_eq!(
        messages(&update(Kind::ResourceSlice, &other, &old)),
        [r#"nodeName: Invalid value: "m": field is immutable"#]
    );
}

#[test]
fn parameters_are_well_formed() {
    let parameters = json!({"metadata": {"name": "p", "namespace": "n"}, "generatedFrom": {"kind": "K"}, "driverRequests": [
        {"driverName": "d", "requests": []}, {"driverName": "d", "requests": [{}, {"namedResources": {"selector": ""}}]}]});
    assert_eq!(
        messages(&create(Kind::ResourceClaimParameters, &parameters)),
        [
            "generatedFrom.name: Required value",
            "driverRequests[0].requests: Required value: empty entries with no requests are not allowed",
            "driverRequests[1].driverName: Duplicate value: \"d\"",
            "driverRequests[1].requests[0]: Required value: exactly one structured model field must be set",
            "driverRequests[1].requests[1].namedResources.selector: Required value",
        ]
    );
    let parameters = json!({"metadata": {"name": "p", "namespace": "n"},
        "filters": [{"driverName": "d", "namedResources": {"selector": "true"}}, {"driverName": "d", "namedResources": {"selector": "true"}}],
        "vendorParameters": [{"driverName": ""}]});
    assert_eq!(
        messages(&create(Kind::ResourceClassParameters, &parameters)),
        [
            "filters[1].driverName: Duplicate value: \"d\"",
            "vendorParameters[0].driverName: Required value"
        ]
    );
}

#[test]
fn claims_show_their_state() {
    let state = |status: Value, deleted: bool| {
        let mut claim = with_status(status);
        if deleted {
            claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        claim_state(&claim)
    };
    let reserved = json!({"allocation": {}, "reservedFor": [{}]});
    assert_eq!(state(json!({}), false), "pending");
    assert_eq!(state(json!({}), true), "deleted");
    assert_eq!(state(json!({"allocation": {}}), false), "allocated");
    assert_eq!(state(reserved.clone(), false), "allocated,reserved");
    assert_eq!(
        state(
            json!({"allocation": {}, "deallocationRequested": true}),
            false
        ),
        "allocated,deallocating"
    );
    assert_eq!(state(reserved, true), "deleted,allocated,reserved");
    assert_eq!(
        state(json!({"allocation": {}}), true),
        "deleted,allocated,deallocating"
    );
}

#[test]
fn each_kind_has_as_many_cells_as_columns() {
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    for kind in Kind::ALL {
        assert_eq!(
            row(kind, &json!({}), now).len(),
            columns(kind).len(),
            "{}",
            kind.name()
        );
        assert_eq!(Kind::from_plural(kind.plural()), Some(kind));
    }
    let parameters = json!({"metadata": {"name": "p"}, "generatedFrom": {"kind": "Cat", "apiGroup": "cats.example.com", "name": "c"}});
    assert_eq!(
        row(Kind::ResourceClaimParameters, &parameters, now)[1],
        "Cat.cats.example.com c"
    );
    let claim = row(Kind::ResourceClaim, &claim(), now);
    assert_eq!(
        Value::from(claim),
        json!(["c", "k", "Immediate", "pending", "<unknown>"])
    );
}

#[test]
fn status_and_spec_have_their_own_endpoints() {
    let mut new = with_status(json!({"driverName": "d"}));
    prepare_for_create(Kind::ResourceClaim, &mut new);
    assert_eq!(new["status"], json!({}));
    let old = with_status(json!({"driverName": "old"}));
    prepare_for_update(Kind::ResourceClaim, &mut new, &old);
    assert_eq!(new["status"]["driverName"], "old");
    let mut status = with_status(json!({"driverName": "new"}));
    status["spec"] = json!({});
    prepare_for_status_update(Kind::ResourceClaim, &mut status, &old);
    assert_eq!(status["spec"], old["spec"]);
    assert_eq!(status["status"]["driverName"], "new");
}

#[test]
fn claims_survive_being_read_as_the_other_generation() {
    let mut classic = with_status(
        json!({"driverName": "d", "allocation": {"resourceHandle": "h", "availableOnNodes": {"nodeSelectorTerms": [{}]}}}),
    );
    classic["apiVersion"] = json!("resource.k8s.io/v1alpha2");
    classic["kind"] = json!("ResourceClaim");
    let seen = exchange::to_v1(Kind::ResourceClaim, &classic).unwrap();
    assert_eq!(seen["apiVersion"], "resource.k8s.io/v1");
    assert_eq!(
        seen["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"],
        "k"
    );
    assert_eq!(
        seen["status"]["allocation"]["nodeSelector"],
        json!({"nodeSelectorTerms": [{}]})
    );
    let mut changed = seen;
    changed["metadata"]["labels"] = json!({"a": "b"});
    let back =
        exchange::from_v1(Kind::ResourceClaim, &changed, "resource.k8s.io/v1alpha2").unwrap();
    classic["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(back, classic);

    let newer = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "t"},
        "spec": {"metadata": {"labels": {"x": "y"}}, "spec": {"devices": {"requests": [{"name": "a", "firstAvailable": [{"name": "b", "deviceClassName": "k"}]}]}}},
    });
    let seen = exchange::from_v1(
        Kind::ResourceClaimTemplate,
        &newer,
        "resource.k8s.io/v1alpha2",
    )
    .unwrap();
    assert_eq!(seen["spec"]["spec"]["resourceClassName"], "k");
    assert_eq!(
        exchange::to_v1(Kind::ResourceClaimTemplate, &seen).unwrap(),
        newer
    );
    assert_eq!(exchange::to_v1(Kind::ResourceClass, &newer), None);
}

#[test]
fn the_canonical_form_is_stable() {
    let mut class = json!({"metadata": {"name": "k"}, "parametersRef": {"kind": "K", "name": "n", "namespace": ""}, "suitableNodes": null});
    normalize(Kind::ResourceClass, &mut class);
    assert_eq!(
        class,
        json!({"metadata": {"name": "k"}, "driverName": "", "parametersRef": {"kind": "K", "name": "n"}})
    );
    assert_eq!(
        unknown_fields(Kind::ResourceClass, &json!({"name": "k", "spec": {}})),
        ["name", "spec"]
    );
}

/// The value must survive being read as `T` and written again.
fn round_trip<T: serde::Serialize + serde::de::DeserializeOwned>(value: Value) -> T {
    let typed: T = serde_json::from_value(value.clone()).unwrap();
    assert_eq!(serde_json::to_value(&typed).unwrap(), value);
    typed
}

#[test]
fn objects_are_read_and_written_as_they_are() {
    use objects::*;
    let data = json!({"vendorClassParameters": {"a": 1}, "nodeName": "n", "results": [{"namedResources": {"name": "i"}}]});
    let claim: ResourceClaim = round_trip(json!({
        "metadata": {"name": "c"},
        "spec": {"resourceClassName": "k", "allocationMode": "Immediate", "parametersRef": {"kind": "K", "name": "p"}},
        "status": {
            "driverName": "d",
            "deallocationRequested": true,
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
            "allocation": {"shareable": true, "resourceHandles": [{"driverName": "d", "structuredData": data}]},
        },
    }));
    assert!(claim.is_structured() && claim.is_reserved_for("u") && !claim.is_reserved_for("v"));
    round_trip::<ResourceClass>(
        json!({"metadata": {}, "driverName": "d", "structuredParameters": true}),
    );
    round_trip::<PodScheduling>(json!({
        "metadata": {},
        "spec": {"selectedNode": "n", "potentialNodes": ["n", "m"]},
        "status": {"resourceClaims": [{"name": "a"}, {"name": "b", "unsuitableNodes": ["m"]}]},
    }));
    let attributes = json!([
        {"name": "q", "quantity": "1Gi"}, {"name": "b", "bool": true}, {"name": "i", "int": 1},
        {"name": "is", "intSlice": {"ints": [1]}}, {"name": "s", "string": "x"},
        {"name": "ss", "stringSlice": {"strings": ["x"]}}, {"name": "v", "version": "1.0.0"},
    ]);
    round_trip::<ResourceSlice>(json!({
        "metadata": {}, "nodeName": "n", "driverName": "d",
        "namedResources": {"instances": [{"name": "i", "attributes": attributes}]},
    }));
    let request = json!({"vendorParameters": {"x": 1}, "namedResources": {"selector": "true"}});
    round_trip::<ClaimParameters>(json!({
        "metadata": {}, "generatedFrom": {"apiGroup": "g", "kind": "K", "name": "n"}, "shareable": true,
        "driverRequests": [{"driverName": "d", "vendorParameters": [1], "requests": [request]}],
    }));
    round_trip::<ClassParameters>(json!({
        "metadata": {}, "vendorParameters": [{"driverName": "d", "parameters": {}}],
        "filters": [{"driverName": "d", "namedResources": {"selector": "true"}}],
    }));
}

#[test]
fn the_original_of_a_claim_is_found_in_its_v1_form() {
    let mut classic = with_status(json!({"driverName": "d", "allocation": {"shareable": true}}));
    classic["apiVersion"] = json!("resource.k8s.io/v1alpha2");
    let expected: objects::ResourceClaim = serde_json::from_value(classic.clone()).unwrap();
    let seen = exchange::to_v1(Kind::ResourceClaim, &classic).unwrap();
    let metadata = serde_json::from_value(seen["metadata"].clone()).unwrap();
    let mut found = objects::ResourceClaim::from_v1(&metadata).unwrap();
    found.metadata.annotations = found.metadata.annotations.filter(|a| !a.is_empty());
    assert_eq!(found, expected);
    assert_eq!(objects::ResourceClaim::from_v1(&Default::default()), None);
}
