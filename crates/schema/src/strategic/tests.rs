use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::types;

fn pod() -> &'static Struct {
    types::lookup("", "v1", "Pod").expect("pods")
}

fn check(original: Value, change: Value, expected: Value) {
    assert_eq!(
        patch(&original, &change, pod()).as_ref(),
        Ok(&expected),
        "{change}"
    );
}

fn refused(original: Value, change: Value, expected: &str) {
    let error = patch(&original, &change, pod()).expect_err("refused");
    assert_eq!(error.to_string(), expected);
}

fn containers(list: Value) -> Value {
    json!({"spec":{"containers":list}})
}

#[test]
fn lists_with_a_key_merge_by_it_and_put_the_patch_first() {
    check(
        containers(json!([{"name":"a","image":"1"},{"name":"b","image":"1"}])),
        containers(json!([{"name":"b","image":"2"},{"name":"c"}])),
        containers(json!([{"name":"a","image":"1"},{"name":"b","image":"2"},{"name":"c"}])),
    );
    check(
        containers(json!([{"name":"a","image":"1"}])),
        containers(json!([{"name":"c"}])),
        containers(json!([{"name":"c"},{"name":"a","image":"1"}])),
    );
}

#[test]
fn objects_are_replaced_where_the_type_says_so() {
    let budget = types::lookup("policy", "v1", "PodDisruptionBudget").expect("budgets");
    let selector = |labels: Value| json!({"spec": {"selector": {"matchLabels": labels}}});
    let patched = patch(
        &selector(json!({"a": "1"})),
        &selector(json!({"b": "2"})),
        budget,
    );
    assert_eq!(patched.as_ref(), Ok(&selector(json!({"b": "2"}))));
}

#[test]
fn lists_without_a_strategy_are_replaced() {
    check(
        json!({"spec":{"tolerations":[{"key":"a"}]}}),
        json!({"spec":{"tolerations":[{"key":"b"}]}}),
        json!({"spec":{"tolerations":[{"key":"b"}]}}),
    );
}

#[test]
fn elements_and_objects_are_deleted_and_replaced_by_directive() {
    check(
        containers(json!([{"name":"a"},{"name":"b"}])),
        containers(json!([{"name":"a","$patch":"delete"}])),
        containers(json!([{"name":"b"}])),
    );
    check(
        containers(json!([{"name":"a"},{"name":"b"}])),
        containers(json!([{"name":"c"},{"$patch":"replace"}])),
        containers(json!([{"name":"c"}])),
    );
    check(
        json!({"metadata":{"labels":{"a":"1","b":"2"}}}),
        json!({"metadata":{"labels":{"$patch":"replace","c":"3"}}}),
        json!({"metadata":{"labels":{"c":"3"}}}),
    );
    check(
        json!({"metadata":{"labels":{"a":"1"}}}),
        json!({"metadata":{"labels":{"$patch":"delete"}}}),
        json!({"metadata":{"labels":{}}}),
    );
    check(
        json!({"metadata":{}}),
        json!({"metadata":{"labels":{"$patch":"delete"}}}),
        json!({"metadata":{}}),
    );
    refused(
        containers(json!([{"name":"a"}])),
        containers(json!([{"$patch":"delete"}])),
        "map: map[$patch:delete] does not contain declared merge key: name",
    );
    refused(
        json!({"metadata":{}}),
        json!({"metadata":{"$patch":"fold"}}),
        "unknown patch type: fold in map: map[$patch:fold]",
    );
}

#[test]
fn retain_keys_drops_the_other_members() {
    check(
        json!({"spec":{"volumes":[{"name":"v","emptyDir":{}}]}}),
        json!({"spec":{"volumes":[{"$retainKeys":["name","configMap"],"name":"v","configMap":{"name":"c"}}]}}),
        json!({"spec":{"volumes":[{"name":"v","configMap":{"name":"c"}}]}}),
    );
    refused(
        json!({"spec":{"volumes":[{"name":"v","emptyDir":{}}]}}),
        json!({"spec":{"volumes":[{"$retainKeys":["name"],"name":"v","configMap":{"name":"c"}}]}}),
        "invalid patch format of retainKeys",
    );
}

#[test]
fn the_order_of_elements_can_be_set() {
    check(
        containers(json!([{"name":"a"},{"name":"b"},{"name":"x"}])),
        json!({"spec":{"$setElementOrder/containers":[{"name":"b"},{"name":"c"},{"name":"a"}],"containers":[{"name":"c"}]}}),
        containers(json!([{"name":"b"},{"name":"c"},{"name":"a"},{"name":"x"}])),
    );
    check(
        json!({"metadata":{"finalizers":["a","b","c"]}}),
        json!({"metadata":{"$setElementOrder/finalizers":["c","a"],"$deleteFromPrimitiveList/finalizers":["b"]}}),
        json!({"metadata":{"finalizers":["c","a"]}}),
    );
    let wrong =
        json!({"spec":{"$setElementOrder/containers":[{"name":"b"}],"containers":[{"name":"c"}]}});
    refused(
        containers(json!([{"name":"a"}])),
        wrong,
        "The order in patch list:\n[map[name:c]]\n doesn't match $setElementOrder list:\n[map[name:b]]\n",
    );
    let replaced = json!({"spec":{"$setElementOrder/containers":[{"name":"b"}],"containers":[{"image":null,"name":"b"},{"$patch":"replace"}]}});
    refused(
        containers(json!([{"name":"a"}])),
        replaced,
        "The order in patch list:\n[map[image:<nil> name:b] map[$patch:replace]]\n doesn't match $setElementOrder list:\n[map[name:b]]\n",
    );
    refused(
        json!({"spec":{"containers":null}}),
        json!({"spec":{"$setElementOrder/containers":[{"name":"b"}],"containers":[{"name":"b"}]}}),
        "expected a []interface {}, but received a %!s(<nil>)",
    );
}

#[test]
fn nulls_delete_and_scalars_join() {
    check(
        json!({"spec":{"nodeName":"n","priority":1}}),
        json!({"spec":{"nodeName":null,"hostname":null}}),
        json!({"spec":{"priority":1}}),
    );
    check(
        json!({"metadata":{"finalizers":["a"]}}),
        json!({"metadata":{"finalizers":["b","a"]}}),
        json!({"metadata":{"finalizers":["b","a"]}}),
    );
    check(
        json!({}),
        json!({"spec":{"nodeSelector":{"a":null,"b":"c"}}}),
        json!({"spec":{"nodeSelector":{"b":"c"}}}),
    );
}

fn lists() -> impl Strategy<Value = Vec<Value>> {
    prop::collection::btree_map("[a-e]", "[x-z]", 0..5)
        .prop_map(|map| {
            map.into_iter()
                .map(|(name, image)| json!({"name":name,"image":image}))
                .collect::<Vec<_>>()
        })
        .prop_shuffle()
}

/// The patch that turns one list into the other, as clients compute it.
fn difference(from: &[Value], to: &[Value]) -> Value {
    let named = |list: &[Value], name: &Value| list.iter().any(|item| &item["name"] == name);
    let order: Vec<Value> = to.iter().map(|item| json!({"name":item["name"]})).collect();
    let mut list: Vec<Value> = to
        .iter()
        .filter(|item| !from.contains(item))
        .cloned()
        .collect();
    list.extend(
        from.iter()
            .filter(|item| !named(to, &item["name"]))
            .map(|item| json!({"name":item["name"],"$patch":"delete"})),
    );
    json!({"spec":{"$setElementOrder/containers":order,"containers":list}})
}

proptest! {
    #[test]
    fn the_patch_of_a_difference_gives_the_other_list(from in lists(), to in lists()) {
        let result = patch(&containers(json!(from)), &difference(&from, &to), pod()).expect("applies");
        prop_assert_eq!(result, containers(json!(to)));
    }
}

/// Merging was quadratic: a patch of one megabyte took minutes.
#[test]
fn regression_long_lists_merge_in_one_go() {
    const MANY: usize = 40_000;
    let finalizers = |from: usize| -> Vec<Value> {
        let names = (from..from + MANY).map(|number| format!("a.b/f{number}"));
        names.map(Value::from).collect()
    };
    let (old, new) = (finalizers(0), finalizers(MANY / 2));
    let original = json!({"metadata": {"finalizers": old}});
    let change = json!({"metadata": {"finalizers": new, "$setElementOrder/finalizers": new}});
    let merged = patch(&original, &change, pod()).expect("a patch");
    let merged = merged["metadata"]["finalizers"].as_array().expect("a list");
    assert_eq!(merged.len(), MANY + MANY / 2);
    assert_eq!(merged[0], old[0]);
    let named = |from: usize| -> Vec<Value> {
        let range = from..from + MANY;
        range.map(|n| json!({"name": format!("c{n}")})).collect()
    };
    let original = containers(named(0).into());
    let mut change = named(MANY / 2);
    change.extend((0..MANY / 4).map(|n| json!({"name": format!("c{n}"), "$patch": "delete"})));
    let merged = patch(&original, &containers(change.into()), pod()).expect("a patch");
    let merged = merged["spec"]["containers"].as_array().expect("a list");
    assert_eq!(merged.len(), MANY + MANY / 2 - MANY / 4);
}
