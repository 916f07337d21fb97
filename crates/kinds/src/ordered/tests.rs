use serde_json::json;

use super::*;

fn schema(kind: &str) -> Option<&'static Struct> {
    allot_schema::types::lookup("", "v1", kind)
}

#[test]
fn fields_come_in_the_order_of_the_type() {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"labels": {"a": "b"}, "name": "p", "future": 1},
        "spec": {"nodeName": "n", "containers": [{"image": "i", "name": "c"}]},
        "status": {"phase": "Running"},
    });
    let mut out = Vec::new();
    object(&mut out, &pod, schema("Pod"));
    let want = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","labels":{"a":"b"},"future":1},"spec":{"containers":[{"name":"c","image":"i"}],"nodeName":"n"},"status":{"phase":"Running"}}"#;
    assert_eq!(String::from_utf8(out).unwrap(), want);
}

#[test]
fn the_stored_form_has_a_place_for_the_revision() {
    let config = json!({"kind": "ConfigMap", "metadata": {"name": "c", "resourceVersion": "7"}, "data": {"a": "1"}});
    let (bytes, at) = stored(&config, None, schema("ConfigMap"), None);
    let complete = allot_store::Draft::at(bytes, at).complete(42);
    assert_eq!(
        &complete[..],
        br#"{"metadata":{"name":"c","resourceVersion":"42"},"data":{"a":"1"}}"#
    );
}

#[test]
fn nothing_is_lost_without_a_type() {
    let thing = json!({"metadata": {"name": "x", "extra": {"a": null}}, "spec": {"z": 1, "a": 2}});
    let (bytes, at) = stored(&thing, None, None, None);
    let complete = allot_store::Draft::at(bytes, at).complete(1);
    let mut read: Value = serde_json::from_slice(&complete).unwrap();
    assert_eq!(read["metadata"]["resourceVersion"].take(), "1");
    read["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    assert_eq!(read, thing);
}

#[test]
fn owners_apart_take_the_place_of_those_in_the_object() {
    let owners = |manager: &str| json!([{"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}}}}]);
    let config = json!({"metadata": {"name": "c", "managedFields": owners("two"), "labels": {"a": "b"}}, "data": {"a": "1"}});
    let apart: Managed = serde_json::from_value(owners("one")).unwrap();
    let (bytes, at) = stored(
        &config,
        Some(Owners::Read(&apart)),
        schema("ConfigMap"),
        None,
    );
    let read = crate::storage::Owned::read(&allot_store::Draft::at(bytes, at).complete(1)).unwrap();
    assert_eq!(read.owners, apart);
    assert!(read.object["metadata"].get("managedFields").is_none());
    assert_eq!(read.whole()["metadata"]["managedFields"], owners("one"));
}
