use super::*;
use crate::validate;

fn class() -> Value {
    json!({
        "metadata": {"name": "gpu", "resourceVersion": "1"},
        "spec": {
            "selectors": [{"cel": {"expression": "true"}}],
            "config": [{"opaque": {"driver": "d.example.com", "parameters": {"a": 1}}}],
            "extendedResourceName": "example.com/gpu",
        },
    })
}

fn check(edits: &[(&str, Value)], expected: &[&str]) {
    assert_messages(create(Kind::DeviceClass, &edited(class(), edits)), expected);
}

#[test]
fn a_good_class_passes() {
    check(&[], &[]);
}

#[test]
fn names_are_subdomains() {
    check(
        &[("/metadata/name", json!("Bad"))],
        &[r#"metadata.name: Invalid value: "Bad": SUBDOMAIN"#],
    );
    check(
        &[("/metadata/namespace", json!("x"))],
        &["metadata.namespace: Forbidden: not allowed on this type"],
    );
}

#[test]
fn lists_are_limited() {
    let many = |item: Value| repeated(&item, 33);
    check(
        &[
            ("/spec/selectors", many(json!({}))),
            ("/spec/config", many(json!({}))),
        ],
        &[
            "spec.selectors: Too many: 33: must have at most 32 items",
            "spec.config: Too many: 33: must have at most 32 items",
        ],
    );
}

#[test]
fn one_ofs_must_be_set() {
    check(
        &[
            ("/spec/selectors/0/cel", Value::Null),
            ("/spec/config/0/opaque", Value::Null),
        ],
        &[
            "spec.selectors[0].cel: Required value",
            "spec.config[0].opaque: Required value",
        ],
    );
}

#[test]
fn parameters_are_objects() {
    let cases = [
        (
            Value::Null,
            "spec.config[0].opaque.parameters: Required value",
        ),
        (
            json!([1]),
            "spec.config[0].opaque.parameters: Invalid value: \"<value omitted>\": must be a valid JSON object",
        ),
        (
            json!({"x": "y".repeat(10240)}),
            "spec.config[0].opaque.parameters: Too long: may not be more than 10240 bytes",
        ),
    ];
    for (value, expected) in cases {
        check(&[("/spec/config/0/opaque/parameters", value)], &[expected]);
    }
}

#[test]
fn stored_config_may_be_too_long() {
    let old = edited(
        class(),
        &[(
            "/spec/config/0/opaque/parameters",
            json!({"x": "y".repeat(10240)}),
        )],
    );
    let update = |new: &Value| validate::update(Kind::DeviceClass, new, &old, &Features::default());
    assert_messages(update(&old), &[]);
    let changed = edited(
        old.clone(),
        &[("/spec/config/0/opaque/driver", json!("e.example.com"))],
    );
    assert_messages(
        update(&changed),
        &["spec.config[0].opaque.parameters: Too long: may not be more than 10240 bytes"],
    );
}

#[test]
fn long_expressions_are_not_compiled() {
    check(
        &[("/spec/selectors/0/cel/expression", json!("x".repeat(10241)))],
        &["spec.selectors[0].cel.expression: Too long: may not be more than 10240 bytes"],
    );
}

#[test]
fn extended_resource_names_have_a_foreign_domain() {
    for name in [
        "gpu",
        "kubernetes.io/gpu",
        "a.kubernetes.io/gpu",
        "requests.example.com/gpu",
        "example.com/",
        "",
    ] {
        let expected = format!(
            "spec.extendedResourceName: Invalid value: {name:?}: must be a valid extended resource name"
        );
        check(&[("/spec/extendedResourceName", json!(name))], &[&expected]);
    }
}
