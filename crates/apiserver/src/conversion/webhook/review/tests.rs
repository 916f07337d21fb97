use serde_json::json;

use super::*;

fn check(original: Value, converted: Value, expected: Result<Value, &str>) {
    let found = restore(&original, converted, "example.com/v2");
    assert_eq!(found, expected.map_err(str::to_owned));
}

fn thing(version: &str, metadata: Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Thing", "metadata": metadata})
}

#[test]
fn only_labels_and_annotations_change() {
    check(
        thing(
            "v1",
            json!({"name": "a", "labels": {"x": "1"}, "annotations": {"k": "v"}, "generation": 3}),
        ),
        thing(
            "v2",
            json!({"name": "a", "labels": {"y": "2"}, "generation": 9, "finalizers": ["f"]}),
        ),
        Ok(thing(
            "v2",
            json!({"name": "a", "labels": {"y": "2"}, "generation": 3}),
        )),
    );
    // What was not valid before stays as it is.
    let odd = json!({"name": "a", "labels": {"x": "a b"}});
    check(
        thing("v1", odd.clone()),
        thing("v2", odd.clone()),
        Ok(thing("v2", odd)),
    );
}

#[test]
fn bad_metadata_is_refused() {
    let before = thing("v1", json!({"name": "a"}));
    let metadata = |metadata: Value| thing("v2", metadata);
    check(
        before.clone(),
        metadata(json!({"name": "a", "labels": {"x y": "1"}})),
        Err(
            "invalid metadata: metadata.labels: Invalid value: \"x y\": name part must consist of alphanumeric \
             characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or \
             'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ),
    );
    check(
        before.clone(),
        metadata(json!({"name": "a", "annotations": [1]})),
        Err(
            "invalid metadata: invalid metadata.annotations of type []interface {} in converted object",
        ),
    );
    check(
        before,
        metadata(json!({"name": "a", "uid": "u"})),
        Err("invalid object: must have the same UID:  != u"),
    );
}
