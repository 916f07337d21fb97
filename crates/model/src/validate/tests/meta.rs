use allot_apimachinery::field::Path;
use allot_apimachinery::names;

use super::*;
use crate::validate::meta;

fn new(metadata: Value, expected: &[&str]) {
    let metadata = edited(json!({"m": {"name": "a", "namespace": "n"}}), &[])
        .get("m")
        .map(|base| merged(base, &metadata))
        .unwrap();
    assert_messages(
        meta::object_meta(
            &metadata,
            true,
            names::dns1123_subdomain,
            &Path::new("metadata"),
        ),
        expected,
    );
}

fn merged(base: &Value, more: &Value) -> Value {
    let mut merged = base.clone();
    merged
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    merged
}

fn replaced(old: Value, metadata: Value, expected: &[&str]) {
    let base = json!({"name": "a", "namespace": "n", "resourceVersion": "1", "uid": "u"});
    let (old, metadata) = (merged(&base, &old), merged(&base, &metadata));
    assert_messages(
        meta::object_meta_update(&metadata, &old, &Path::new("metadata")),
        expected,
    );
}

#[test]
fn generated_names_may_end_with_a_dash() {
    new(json!({"generateName": "abc-"}), &[]);
    new(
        json!({"generateName": "ABC-"}),
        &[r#"metadata.generateName: Invalid value: "ABC-": SUBDOMAIN"#],
    );
}

#[test]
fn labels_and_annotations_have_valid_keys() {
    new(
        json!({"labels": {"a b": "x", "c": "!"}, "annotations": {"d e": "", "F/g": ""}}),
        &[
            r#"metadata.labels: Invalid value: "a b": QUALIFIED"#,
            r#"metadata.labels: Invalid value: "!": VALUE"#,
            r#"metadata.annotations: Invalid value: "d e": QUALIFIED"#,
        ],
    );
    new(
        json!({"annotations": {"a": "x".repeat(256 * 1024)}}),
        &["metadata.annotations: Too long: may not be more than 262144 bytes"],
    );
}

#[test]
fn owners_are_complete() {
    new(
        json!({"ownerReferences": [{"apiVersion": "apps/", "kind": "", "name": "", "uid": ""}]}),
        &[
            r#"metadata.ownerReferences.apiVersion: Invalid value: "apps/": version must not be empty"#,
            r#"metadata.ownerReferences.kind: Invalid value: "": must not be empty"#,
            r#"metadata.ownerReferences.name: Invalid value: "": must not be empty"#,
            r#"metadata.ownerReferences.uid: Invalid value: "": must not be empty"#,
        ],
    );
    let owner = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": "u", "controller": true});
    new(
        json!({"ownerReferences": [owner("a"), owner("b")]}),
        &[concat!(
            r#"metadata.ownerReferences: Invalid value: [{"apiVersion":"v1","kind":"Pod","name":"a","uid":"u","controller":true},"#,
            r#"{"apiVersion":"v1","kind":"Pod","name":"b","uid":"u","controller":true}]: "#,
            r#"Only one reference can have Controller set to true. Found "true" in references for Pod/a and Pod/b"#
        )],
    );
}

#[test]
fn finalizers_are_standard_or_qualified() {
    new(
        json!({"finalizers": ["mine", "example.com/f", "orphan"]}),
        &[
            r#"metadata.finalizers[0]: Invalid value: "mine": name is neither a standard finalizer name nor is it fully qualified"#,
        ],
    );
    new(
        json!({"finalizers": ["orphan", "foregroundDeletion"]}),
        &[
            r#"metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: finalizer orphan and foregroundDeletion cannot be both set"#,
        ],
    );
}

#[test]
fn an_object_on_its_way_out_gets_no_new_finalizers() {
    let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]});
    let with = |finalizers: Value| merged(&deleted, &json!({"finalizers": finalizers}));
    replaced(deleted.clone(), with(json!([])), &[]);
    replaced(
        deleted.clone(),
        with(json!(["a/b", "c/d"])),
        &[
            r#"metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"c/d"}"#,
        ],
    );
}

#[test]
fn identity_does_not_change() {
    replaced(
        json!({"generation": 2}),
        json!({"name": "b", "uid": "v", "generation": 1, "resourceVersion": "", "creationTimestamp": "2026-01-01T00:00:00Z"}),
        &[
            r#"metadata.resourceVersion: Invalid value: "": must be specified for an update"#,
            "metadata.generation: Invalid value: 1: must not be decremented",
            r#"metadata.name: Invalid value: "b": field is immutable"#,
            r#"metadata.uid: Invalid value: "v": field is immutable"#,
            r#"metadata.creationTimestamp: Invalid value: "2026-01-01T00:00:00Z": field is immutable"#,
        ],
    );
}

#[test]
fn managed_fields_are_well_formed() {
    new(
        json!({"managedFields": [{"operation": "Delete", "fieldsType": "V0", "manager": "x".repeat(129)}]}),
        &[
            r#"metadata.managedFields[0].operation: Invalid value: "Delete": must be `Apply` or `Update`"#,
            r#"metadata.managedFields[0].fieldsType: Invalid value: "V0": must be `FieldsV1`"#,
            "metadata.managedFields[0].manager: Too long: may not be more than 128 bytes",
        ],
    );
}
