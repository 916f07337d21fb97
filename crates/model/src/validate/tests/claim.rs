use super::*;
use crate::features::Feature;
use crate::validate;

fn claim() -> Value {
    json!({
        "metadata": {"name": "c", "namespace": "ns", "resourceVersion": "1"},
        "spec": {"devices": {
            "requests": [
                {"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}},
                {"name": "f", "firstAvailable": [
                    {"name": "x", "deviceClassName": "gpu", "allocationMode": "All"},
                    {"name": "y", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2},
                ]},
            ],
            "constraints": [{"requests": ["gpu", "f/x"], "matchAttribute": "example.com/numa"}],
            "config": [{"requests": ["f"], "opaque": {"driver": "d.example.com", "parameters": {}}}],
        }},
    })
}

fn check(edits: &[(&str, Value)], expected: &[&str]) {
    assert_messages(
        create(Kind::ResourceClaim, &edited(claim(), edits)),
        expected,
    );
}

#[test]
fn a_good_claim_passes() {
    check(&[], &[]);
}

#[test]
fn a_claim_needs_a_name_and_a_namespace() {
    check(
        &[
            ("/metadata/name", Value::Null),
            ("/metadata/namespace", Value::Null),
        ],
        &[
            "metadata.name: Required value: name or generateName is required",
            "metadata.namespace: Required value",
        ],
    );
}

#[test]
fn request_names_are_unique_labels() {
    check(
        &[
            ("/spec/devices/requests/0/name", json!("A.b")),
            ("/spec/devices/constraints", Value::Null),
        ],
        &[r#"spec.devices.requests[0].name: Invalid value: "A.b": LABEL"#],
    );
    check(
        &[
            ("/spec/devices/requests/0/name", json!("a.b")),
            ("/spec/devices/constraints", Value::Null),
        ],
        &[r#"spec.devices.requests[0].name: Invalid value: "a.b": must not contain dots"#],
    );
    check(
        &[
            ("/spec/devices/requests/0/name", json!("f")),
            ("/spec/devices/constraints", Value::Null),
        ],
        &[r#"spec.devices.requests[1]: Duplicate value: "f""#],
    );
    check(
        &[("/spec/devices/requests/1/firstAvailable/1/name", json!("x"))],
        &[r#"spec.devices.requests[1].firstAvailable[1]: Duplicate value: "x""#],
    );
}

#[test]
fn a_request_is_exact_or_has_alternatives() {
    check(
        &[("/spec/devices/requests/0/exactly", Value::Null)],
        &[
            "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
        ],
    );
    check(
        &[(
            "/spec/devices/requests/0/firstAvailable",
            json!([{"name": "z"}]),
        )],
        &[
            "spec.devices.requests[0]: Invalid value: null: exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
        ],
    );
}

#[test]
fn lists_are_limited() {
    let request = json!({"exactly": {"deviceClassName": "gpu", "allocationMode": "All"}});
    check(
        &[
            ("/spec/devices/requests", named(33, request.clone())),
            ("/spec/devices/constraints", repeated(&json!({}), 33)),
            ("/spec/devices/config", repeated(&json!({}), 33)),
        ],
        &[
            "spec.devices.requests: Too many: 33: must have at most 32 items",
            "spec.devices.constraints: Too many: 33: must have at most 32 items",
            "spec.devices.config: Too many: 33: must have at most 32 items",
        ],
    );
    check(
        &[
            (
                "/spec/devices/requests/0/exactly/selectors",
                repeated(&json!({}), 33),
            ),
            (
                "/spec/devices/requests/1/firstAvailable",
                named(9, json!({})),
            ),
            (
                "/spec/devices/constraints/0/requests",
                repeated(&json!("gpu"), 33),
            ),
        ],
        &[
            "spec.devices.requests[0].exactly.selectors: Too many: 33: must have at most 32 items",
            "spec.devices.requests[1].firstAvailable: Too many: 9: must have at most 8 items",
            "spec.devices.constraints[0].requests: Too many: 33: must have at most 32 items",
        ],
    );
}

#[test]
fn modes_and_counts_fit_together() {
    let exactly = |mode: &str, count: i64| {
        [
            (
                "/spec/devices/requests/0/exactly/allocationMode",
                json!(mode),
            ),
            ("/spec/devices/requests/0/exactly/count", json!(count)),
        ]
    };
    let path = "spec.devices.requests[0].exactly";
    check(&exactly("All", 0), &[]);
    check(
        &exactly("All", 3),
        &[&format!(
            "{path}.count: Invalid value: 3: must not be specified when allocationMode is 'All'"
        )],
    );
    check(
        &exactly("ExactCount", 0),
        &[&format!(
            "{path}.count: Invalid value: 0: must be greater than zero"
        )],
    );
    check(
        &exactly("<Some>", 0),
        &[&format!(
            r#"{path}.allocationMode: Unsupported value: "\u003cSome\u003e": supported values: "All", "ExactCount""#
        )],
    );
}

#[test]
fn classes_are_named() {
    check(
        &[(
            "/spec/devices/requests/0/exactly/deviceClassName",
            json!(""),
        )],
        &["spec.devices.requests[0].exactly.deviceClassName: Required value"],
    );
    check(
        &[(
            "/spec/devices/requests/1/firstAvailable/0/deviceClassName",
            json!("A b"),
        )],
        &[
            r#"spec.devices.requests[1].firstAvailable[0].deviceClassName: Invalid value: "A b": SUBDOMAIN"#,
        ],
    );
}

#[test]
fn tolerations_follow_their_operator() {
    let path = "spec.devices.requests[0].exactly.tolerations[0]";
    let cases = [
        (
            json!({"operator": "Exists", "value": "v"}),
            format!("{path}.value: Invalid value: \"v\": must be empty for operator `Exists`"),
        ),
        (
            json!({"operator": ""}),
            format!("{path}.operator: Required value"),
        ),
        (
            json!({"operator": "Is"}),
            format!(
                "{path}.operator: Unsupported value: \"Is\": supported values: \"Equal\", \"Exists\""
            ),
        ),
        (
            json!({"operator": "Equal", "value": "a b"}),
            format!("{path}.value: Invalid value: \"a b\": VALUE"),
        ),
        (
            json!({"operator": "Exists", "key": "a b"}),
            format!("{path}.key: Invalid value: \"a b\": QUALIFIED"),
        ),
        (
            json!({"operator": "Exists", "effect": "Evict"}),
            format!(
                "{path}.effect: Unsupported value: \"Evict\": supported values: \"NoExecute\", \"NoSchedule\", \"None\""
            ),
        ),
    ];
    for (toleration, expected) in cases {
        check(
            &[(
                "/spec/devices/requests/0/exactly/tolerations",
                json!([toleration]),
            )],
            &[&expected],
        );
    }
}

#[test]
fn the_documented_number_of_tolerations_is_not_enforced() {
    let many = repeated(&json!({"operator": "Exists"}), 17);
    check(
        &[("/spec/devices/requests/0/exactly/tolerations", many)],
        &[],
    );
}

#[test]
fn references_name_requests() {
    const TEXT: &str = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
    let path = "spec.devices.constraints[0].requests[0]";
    for name in ["zzz", "f/z", "gpu/x"] {
        let expected = format!("{path}: Invalid value: {name:?}: {TEXT}");
        check(
            &[("/spec/devices/constraints/0/requests/0", json!(name))],
            &[&expected],
        );
    }
    check(
        &[("/spec/devices/constraints/0/requests/0", json!("f/x/y"))],
        &[&format!("{path}: Invalid value: \"f/x/y\": {TEXT}")],
    );
    check(
        &[("/spec/devices/constraints/0/requests/0", json!("f/!"))],
        &[
            &format!("{path}: Invalid value: \"!\": LABEL"),
            &format!("{path}: Invalid value: \"f/!\": {TEXT}"),
        ],
    );
    check(
        &[("/spec/devices/constraints/0/requests/1", json!("gpu"))],
        &[r#"spec.devices.constraints[0].requests[1]: Duplicate value: "gpu""#],
    );
}

#[test]
fn attributes_are_fully_qualified() {
    let path = "spec.devices.constraints[0].matchAttribute";
    let cases = [
        (
            "numa",
            vec![format!(
                "{path}: Invalid value: \"numa\": a fully qualified name must be a domain and a name separated by a slash"
            )],
        ),
        (
            "/numa",
            vec![format!(
                "{path}: Invalid value: \"\": the domain must not be empty"
            )],
        ),
        (
            "a.b/",
            vec![format!(
                "{path}: Invalid value: \"\": the name must not be empty"
            )],
        ),
        (
            "a_b/numa",
            vec![format!("{path}: Invalid value: \"a_b\": SUBDOMAIN")],
        ),
        (
            "a.b/1",
            vec![format!("{path}: Invalid value: \"1\": IDENTIFIER")],
        ),
        // Upstream does not look at names with more than one slash.
        ("a/b/c!", vec![]),
    ];
    for (name, expected) in cases {
        let expected: Vec<_> = expected.iter().map(String::as_str).collect();
        check(
            &[("/spec/devices/constraints/0/matchAttribute", json!(name))],
            &expected,
        );
    }
}

#[test]
fn a_constraint_without_attribute_depends_on_the_feature() {
    let claim = edited(
        claim(),
        &[("/spec/devices/constraints/0/matchAttribute", Value::Null)],
    );
    assert_messages(
        create(Kind::ResourceClaim, &claim),
        &[
            r#"spec.devices.constraints[0]: Required value: exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set"#,
        ],
    );
    let off = Features::default().with(Feature::DRAConsumableCapacity, false);
    assert_messages(
        validate::create(Kind::ResourceClaim, &claim, &off),
        &["spec.devices.constraints[0].matchAttribute: Required value"],
    );
}

#[test]
fn the_spec_is_immutable_and_not_judged_again() {
    // Neither `exactly` nor `firstAvailable`: only a new claim is refused for that.
    let old = edited(
        claim(),
        &[("/spec", json!({"devices": {"requests": [{"name": "r"}]}}))],
    );
    let update =
        |new: &Value| validate::update(Kind::ResourceClaim, new, &old, &Features::default());
    assert_messages(update(&old), &[]);
    let new = edited(old.clone(), &[("/spec/devices/requests", json!([]))]);
    assert_messages(
        update(&new),
        &[
            r#"spec: Invalid value: {"Devices":{"Requests":[],"Constraints":null,"Config":null}}: field is immutable"#,
        ],
    );
}

#[test]
fn templates_have_labels_and_annotations_only() {
    let template = json!({
        "metadata": {"name": "t", "namespace": "ns"},
        "spec": {"metadata": {"labels": {"a": "b"}, "name": "x", "finalizers": ["a/b"], "uid": "u"}, "spec": claim()["spec"]},
    });
    assert_messages(
        create(Kind::ResourceClaimTemplate, &template),
        &[
            "spec.metadata.name: Forbidden: cannot be set",
            "spec.metadata.uID: Forbidden: cannot be set",
            "spec.metadata.finalizers: Forbidden: cannot be set",
        ],
    );
}
