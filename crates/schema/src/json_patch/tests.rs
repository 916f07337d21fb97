use serde_json::json;

use super::*;

/// Applies a patch to a document; an expected text is an error.
fn check(document: Value, patch: Value, expected: Value) {
    let mut found = document.clone();
    let outcome = Patch::from_json(&patch).and_then(|patch| patch.apply(&mut found));
    let found = outcome.map_or_else(|error| Value::from(error.to_string()), |()| found);
    assert_eq!(found, expected, "{document} {patch}");
}

#[test]
fn operations_change_the_document() {
    let document = json!({"a":[1,2,3],"b":{"c/d":1}});
    let add = |path: &str, value: i64| json!([{"op":"add","path":path,"value":value}]);
    check(
        document.clone(),
        add("/a/-", 4),
        json!({"a":[1,2,3,4],"b":{"c/d":1}}),
    );
    check(
        document.clone(),
        add("/a/1", 4),
        json!({"a":[1,4,2,3],"b":{"c/d":1}}),
    );
    check(
        document.clone(),
        add("/b/c~1d", 4),
        json!({"a":[1,2,3],"b":{"c/d":4}}),
    );
    let moved = json!([{"op":"move","from":"/a/0","path":"/b/x"}]);
    check(
        document.clone(),
        moved,
        json!({"a":[2,3],"b":{"c/d":1,"x":1}}),
    );
    let copied = json!([{"op":"copy","from":"/b","path":"/a/0"},{"op":"remove","path":"/b"}]);
    check(document.clone(), copied, json!({"a":[{"c/d":1},1,2,3]}));
    let tested =
        json!([{"op":"test","path":"/a","value":[1,2,3]},{"op":"replace","path":"/a","value":0}]);
    check(document, tested, json!({"a":0,"b":{"c/d":1}}));
}

#[test]
fn an_index_may_count_from_the_end() {
    let document = json!({"a":[1,2,3]});
    check(
        document.clone(),
        json!([{"op":"remove","path":"/a/-1"}]),
        json!({"a":[1,2]}),
    );
    check(
        document.clone(),
        json!([{"op":"replace","path":"/a/-2","value":9}]),
        json!({"a":[1,9,3]}),
    );
    check(
        document.clone(),
        json!([{"op":"add","path":"/a/-1","value":9}]),
        json!({"a":[1,2,3,9]}),
    );
    check(
        document,
        json!([{"op":"remove","path":"/a/-4"}]),
        json!(
            "error in remove for path: '/a/-4': Unable to access invalid index: -4: invalid index referenced"
        ),
    );
}

#[test]
fn what_is_missing_is_null() {
    let document = json!({"a":null});
    check(
        document.clone(),
        json!([{"op":"test","path":"/a"},{"op":"test","path":"/b","value":null}]),
        document.clone(),
    );
    check(
        document.clone(),
        json!([{"op":"replace","path":"/b","value":1}]),
        json!({"a":null,"b":1}),
    );
    check(
        document.clone(),
        json!([{"op":"copy","from":"/x","path":"/b"}]),
        json!({"a":null,"b":null}),
    );
    check(
        document.clone(),
        json!([{"op":"test","path":"/a","value":1}]),
        json!("testing value /a failed: test failed"),
    );
    check(
        document,
        json!([{"op":"add","path":"/x/y","value":1}]),
        json!("add operation does not apply: doc is missing path: \"/x/y\": missing value"),
    );
}

#[test]
fn a_patch_is_a_list_of_objects() {
    let patch = |patch: Value, text: &str| check(json!({}), patch, json!(text));
    patch(
        json!({}),
        "json: cannot unmarshal object into Go value of type jsonpatch.Patch",
    );
    patch(
        json!([1]),
        "json: cannot unmarshal number into Go value of type jsonpatch.Operation",
    );
    patch(json!([{"op":"grow","path":"/a"}]), "Unexpected kind: grow");
    patch(
        json!([{"op":"add"}]),
        "add operation failed to decode path: missing value",
    );
}

#[test]
fn copies_do_not_grow_without_bound() {
    let double = json!({"op":"copy","from":"/a","path":"/a/-"});
    let patch = json!([double, double, double, double]);
    let mut document = json!({"a":["x".repeat(1 << 20)]});
    let patch = Patch::from_json(&patch).expect("a patch");
    let error = patch.apply(&mut document).expect_err("too much");
    assert!(
        error.to_string().starts_with("Unable to complete the copy"),
        "{error}"
    );
}

#[test]
fn a_merge_puts_no_nulls() {
    let check = |mut document: Value, patch: Value, expected: Value| {
        merge(&mut document, &patch);
        assert_eq!(document, expected, "{patch}");
    };
    check(
        json!({"a":1,"b":{"c":1}}),
        json!({"a":null,"b":{"d":2}}),
        json!({"b":{"c":1,"d":2}}),
    );
    check(
        json!({}),
        json!({"a":{"b":null,"c":[{"d":null}]}}),
        json!({"a":{"c":[{}]}}),
    );
    check(
        json!({"a":[1]}),
        json!({"a":[null,{"b":null}]}),
        json!({"a":[null,{}]}),
    );
    check(
        json!({"a":{"b":1}}),
        json!({"a":[{"b":null}]}),
        json!({"a":[{"b":null}]}),
    );
}

/// Operations of which each makes the document one level deeper, by moving it into something new or by adding at its end.
#[test]
fn ten_thousand_operations_nest_nothing_without_end() {
    let moves: Vec<Value> = (0..10_000)
        .flat_map(|_| {
            [
                json!({"op":"add","path":"/b","value":{}}),
                json!({"op":"move","from":"/a","path":"/b/a"}),
                json!({"op":"move","from":"/b","path":"/a"}),
            ]
        })
        .collect();
    let adds: Vec<Value> = (0..1_000)
        .map(|depth| json!({"op":"add","path":"/a".repeat(depth + 1),"value":{}}))
        .collect();
    let copies: Vec<Value> = (0..200)
        .flat_map(|_| {
            [
                json!({"op":"copy","from":"/a","path":"/b"}),
                json!({"op":"replace","path":"/a","value":{}}),
                json!({"op":"move","from":"/b","path":"/a/a"}),
            ]
        })
        .collect();
    for operations in [moves, adds, copies] {
        let patch = Patch::from_json(&operations.into()).unwrap();
        let mut document = json!({"a":{}});
        let error = patch.apply(&mut document).unwrap_err().to_string();
        assert!(
            error.contains("nested more than 127 levels deep"),
            "{error}"
        );
        let text = document.to_string();
        serde_json::from_str::<Value>(&text).unwrap();
    }
}

#[test]
fn a_patch_looks_at_so_many_values_and_no_more() {
    let wide = vec![0; 100_000];
    let moves: Vec<Value> = (0..5_000)
        .map(|round| match round % 2 {
            0 => json!({"op":"move","from":"/a","path":"/b"}),
            _ => json!({"op":"move","from":"/b","path":"/a"}),
        })
        .collect();
    let patch = Patch::from_json(&moves.into()).unwrap();
    let error = patch.apply(&mut json!({"a":wide})).unwrap_err().to_string();
    assert!(error.contains("look at more than"), "{error}");
}

/// A hundred thousand operations at the start of a list of a hundred thousand elements move all of them each time.
#[test]
fn regression_operations_move_a_bounded_number_of_elements() {
    let operation = json!({"op":"move","from":"/a/0","path":"/a/1"});
    let patch = Patch::from_json(&vec![operation; 100_000].into()).unwrap();
    let error = patch
        .apply(&mut json!({"a":vec![Value::Null; 100_000]}))
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "the operations move more than 33554432 elements of lists"
    );
    patch
        .apply(&mut json!({"a":vec![Value::Null; 100]}))
        .unwrap();
    let add = json!({"op":"add","path":"/a/-","value":1});
    let mut found = json!({"a":[]});
    let patch = Patch::from_json(&vec![add; 100_000].into()).unwrap();
    patch.apply(&mut found).unwrap();
    assert_eq!(found["a"].as_array().unwrap().len(), 100_000);
}
