use super::*;
use crate::validate;

fn request() -> Value {
    json!({"metadata": {"name": "q", "resourceVersion": "1"}, "spec": {"driver": "d.example.com", "poolName": "a/b", "limit": 5}})
}

fn check(edits: &[(&str, Value)], expected: &[&str]) {
    assert_messages(
        create(Kind::ResourcePoolStatusRequest, &edited(request(), edits)),
        expected,
    );
}

#[test]
fn the_question_is_well_formed() {
    check(&[], &[]);
    check(
        &[("/spec/driver", json!(""))],
        &["spec.driver: Required value"],
    );
    check(&[("/spec/driver", json!("D.Example.com"))], &[]);
    check(
        &[("/spec/limit", json!(0))],
        &["spec.limit: Invalid value: 0: must be greater than or equal to 1"],
    );
    check(
        &[("/spec/limit", json!(1001))],
        &["spec.limit: Invalid value: 1001: must be less than or equal to 1000"],
    );
    check(
        &[("/spec/poolName", json!("a//B"))],
        &[
            r#"spec.poolName: Invalid value: "a//B": segment 1: must not be empty"#,
            r#"spec.poolName: Invalid value: "B": segment 2: SUBDOMAIN"#,
        ],
    );
}

#[test]
fn the_question_is_immutable() {
    let new = edited(request(), &[("/spec/limit", json!(6))]);
    let errors = validate::update(
        Kind::ResourcePoolStatusRequest,
        &new,
        &request(),
        &Features::default(),
    );
    assert_messages(errors, &["spec: Invalid value: null: field is immutable"]);
}

#[test]
fn the_answer_is_given_once() {
    let answered = |status: Value| edited(request(), &[("/status", status)]);
    let update = |new: &Value, old: &Value| {
        validate::status_update(Kind::ResourcePoolStatusRequest, new, old)
    };
    assert_messages(
        update(&answered(json!({})), &request()),
        &["status.poolCount: Required value"],
    );
    let one = answered(json!({"poolCount": 1}));
    assert_messages(update(&one, &request()), &[]);
    assert_messages(update(&one, &one), &[]);
    assert_messages(
        update(&answered(json!({"poolCount": 2})), &one),
        &[
            r#"status: Invalid value: {"PoolCount":2,"Pools":null,"Conditions":null}: field is immutable"#,
        ],
    );
}
