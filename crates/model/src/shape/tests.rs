use serde_json::json;

use super::*;
use crate::kind::Kind;

const CLAIM: Ty = Ty::Struct(&tables::CLAIM_SPEC);

#[test]
fn quotes_show_every_go_field() {
    let spec = json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c<d>", "count": 1,
        "capacity": {"requests": {"b": "1.5Gi", "a": 2}}}}], "config": [{"opaque": {"driver": "d", "parameters": {"x": [1, null]}}}]}});
    assert_eq!(
        quote(CLAIM, &spec),
        concat!(
            r#"{"Devices":{"Requests":[{"Name":"r","Exactly":{"DeviceClassName":"c\u003cd\u003e","Selectors":null,"#,
            r#""AllocationMode":"","Count":1,"AdminAccess":null,"Tolerations":null,"Capacity":{"Requests":{"a":"2","b":"1536Mi"}}},"#,
            r#""FirstAvailable":null}],"Constraints":null,"#,
            r#""Config":[{"Requests":null,"Opaque":{"Driver":"d","Parameters":{"x":[1,null]}}}]}}"#
        )
    );
}

#[test]
fn embedded_metadata_is_quoted_with_its_tags() {
    let spec = json!({"metadata": {"labels": {"a": "b"}}, "spec": {}});
    let quoted = quote(Ty::Struct(&tables::TEMPLATE_SPEC), &spec);
    assert_eq!(
        quoted,
        r#"{"labels":{"a":"b"},"Spec":{"Devices":{"Requests":null,"Constraints":null,"Config":null}}}"#
    );
}

#[test]
fn equality_is_semantic() {
    let equal = |left: Value, right: Value| super::equal(CLAIM, &left, &right);
    let capacity = |value: &str| json!({"devices": {"requests": [{"exactly": {"capacity": {"requests": {"m": value}}}}]}});
    assert!(equal(capacity("1024Mi"), capacity("1Gi")));
    assert!(!equal(capacity("1G"), capacity("1Gi")));
    assert!(equal(
        json!({"devices": {"requests": [], "config": null}}),
        json!({})
    ));
    let request = |request: Value| json!({"devices": {"requests": [request]}});
    assert!(equal(request(json!({"name": ""})), request(json!({}))));
    let admin = |admin: Value| request(json!({"exactly": {"adminAccess": admin}}));
    assert!(!equal(admin(json!(false)), admin(Value::Null)));
    assert!(!equal(
        request(json!({"fromTheFuture": 1})),
        request(json!({}))
    ));
}

#[test]
fn times_are_equal_when_the_instant_is() {
    let taint = |time: &str| json!([{"key": "k", "effect": "None", "timeAdded": time}]);
    assert!(equal(
        tables::TAINTS,
        &taint("2024-01-01T01:00:00+01:00"),
        &taint("2024-01-01T00:00:00Z")
    ));
    assert!(!equal(
        tables::TAINTS,
        &taint("2024-01-01T01:00:00Z"),
        &taint("2024-01-01T00:00:00Z")
    ));
}

#[test]
fn the_tables_name_each_field_once() {
    fn walk(ty: Ty, depth: usize) {
        match ty {
            Ty::Struct(shape) => {
                for (index, field) in shape.fields.iter().enumerate() {
                    assert!(
                        shape.fields[..index]
                            .iter()
                            .all(|before| before.json != field.json),
                        "{}",
                        field.json
                    );
                    walk(field.ty, depth + 1);
                }
            }
            Ty::List(item) | Ty::Map(item) => walk(*item, depth + 1),
            _ => assert!(depth < 20),
        }
    }
    Kind::ALL
        .into_iter()
        .for_each(|kind| walk(tables::of(kind), 0));
}
