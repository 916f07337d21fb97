use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{merge, types};

/// A built-in kind in one version.
struct One {
    node: &'static Struct,
    reset: Set,
}

impl Versions for One {
    fn node(&self, api_version: &str) -> Option<Node<'_>> {
        (api_version != "gone/v1").then_some(Node::Struct(self.node))
    }

    fn convert(&self, object: &Value, _api_version: &str) -> Option<Value> {
        Some(object.clone())
    }

    fn reset_fields(&self, _api_version: &str) -> Set {
        self.reset.clone()
    }
}

const NOW: &str = "2026-01-01T00:00:00Z";

fn pods() -> One {
    One {
        node: types::lookup("", "v1", "Pod").expect("pods"),
        reset: Set::of_fields([&["status"][..]]),
    }
}

fn manager(versions: &dyn Versions) -> FieldManager<'_> {
    FieldManager {
        versions,
        api_version: "v1",
        kind: "Pod",
        subresource: "",
        now: NOW,
    }
}

/// The whole of a write, with the owners in the object.
trait Whole {
    fn write(&self, live: &Value, new: &mut Value, manager: &str);
    fn applied(
        &self,
        live: &Value,
        config: &Value,
        manager: &str,
        force: bool,
    ) -> Result<Value, Error>;
}

impl Whole for FieldManager<'_> {
    fn write(&self, live: &Value, new: &mut Value, manager: &str) {
        let mut live = live.clone();
        let owned = Managed::take(&mut live);
        self.update(&live, &owned, new, manager).write(new);
    }

    fn applied(
        &self,
        live: &Value,
        config: &Value,
        manager: &str,
        force: bool,
    ) -> Result<Value, Error> {
        let mut live = live.clone();
        let owned = Managed::take(&mut live);
        let (mut object, owners) = self.apply(&live, &owned, config, manager, force)?;
        owners.write(&mut object);
        Ok(object)
    }
}

fn pod(name: &str, spec: Value) -> Value {
    json!({"apiVersion":"v1","kind":"Pod","metadata":{"name":name},"spec":spec})
}

fn settled(mut object: Value) -> Value {
    decode::normalize(&mut object, types::lookup("", "v1", "Pod").expect("pods"));
    object
}

fn empty() -> Value {
    empty_object(Node::Struct(pods().node), "v1", "Pod")
}

fn entries(object: &Value) -> Vec<(String, String, Value)> {
    let list = object["metadata"]["managedFields"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    list.iter()
        .map(|e| {
            let text = |key: &str| e[key].as_str().unwrap_or_default().to_owned();
            (text("manager"), text("operation"), e["fieldsV1"].clone())
        })
        .collect()
}

fn entry(manager: &str, operation: &str, fields: Value) -> (String, String, Value) {
    (manager.to_owned(), operation.to_owned(), fields)
}

#[test]
fn a_create_owns_what_it_says_and_members_of_lists_and_maps() {
    let versions = pods();
    let mut new = settled(pod("p", json!({"containers":[{"name":"a","image":"i"}]})));
    new["metadata"]["labels"] = json!({"x":"y"});
    manager(&versions).write(&empty(), &mut new, "kubectl");
    assert_eq!(
        entries(&new),
        [entry(
            "kubectl",
            "Update",
            json!({
                "f:metadata":{"f:labels":{".":{},"f:x":{}}},
                "f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:image":{},"f:name":{},"f:resources":{}}}}
            })
        )]
    );
}

#[test]
fn appliers_conflict_force_and_share() {
    let versions = pods();
    let fields = manager(&versions);
    let first = pod(
        "p",
        json!({"containers":[{"name":"a","image":"one"}],"nodeName":"n"}),
    );
    let live = settled(
        fields
            .applied(&empty(), &first, "one", false)
            .expect("first apply"),
    );
    let other = pod(
        "p",
        json!({"containers":[{"name":"a","image":"two"},{"name":"b"}]}),
    );
    let error = fields
        .applied(&live, &other, "two", false)
        .expect_err("a conflict");
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"one\": .spec.containers[name=\"a\"].image"
    );
    let live = settled(fields.applied(&live, &other, "two", true).expect("forced"));
    assert_eq!(live["spec"]["containers"][0]["image"], "two");
    assert_eq!(
        entries(&live),
        [
            entry(
                "one",
                "Apply",
                json!({"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:name":{}}},"f:nodeName":{}}})
            ),
            entry(
                "two",
                "Apply",
                json!({"f:spec":{"f:containers":{
                    "k:{\"name\":\"a\"}":{".":{},"f:image":{},"f:name":{}},
                    "k:{\"name\":\"b\"}":{".":{},"f:name":{}}
                }}})
            ),
        ]
    );
    // What an applier stops to mention goes, unless another still wants it.
    let less = pod("p", json!({"containers":[{"name":"a","image":"two"}]}));
    let live = settled(fields.applied(&live, &less, "two", false).expect("less"));
    assert_eq!(live["spec"]["containers"].as_array().map(Vec::len), Some(1));
    let none = pod("p", json!({}));
    let live = settled(fields.applied(&live, &none, "two", false).expect("none"));
    assert_eq!(
        live["spec"]["containers"][0],
        json!({"name":"a","resources":{}})
    );
    assert_eq!(live["spec"]["nodeName"], "n");
}

#[test]
fn a_plain_write_takes_fields_without_asking_and_removal_drops_them() {
    let versions = pods();
    let fields = manager(&versions);
    let config = pod(
        "p",
        json!({"containers":[{"name":"a","image":"one"}],"nodeName":"n"}),
    );
    let mut live = settled(
        fields
            .applied(&empty(), &config, "one", false)
            .expect("applies"),
    );
    live["metadata"]["uid"] = json!("u");
    let mut new = live.clone();
    new["spec"]["containers"][0]["image"] = json!("edited");
    new["spec"]
        .as_object_mut()
        .expect("spec")
        .remove("nodeName");
    fields.write(&live, &mut new, "editor");
    assert_eq!(
        entries(&new),
        [
            entry(
                "one",
                "Apply",
                json!({"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:name":{}}}}})
            ),
            entry(
                "editor",
                "Update",
                json!({"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{"f:image":{}}}}})
            ),
        ]
    );
    let error = fields
        .applied(&new, &config, "one", false)
        .expect_err("conflict with the editor");
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"editor\" using v1: .spec.containers[name=\"a\"].image"
    );
}

#[test]
fn status_is_not_owned_through_the_main_resource() {
    let versions = pods();
    let mut config = pod("p", json!({"containers":[{"name":"a"}]}));
    config["status"] = json!({"phase":"Running"});
    let live = manager(&versions)
        .applied(&empty(), &config, "one", false)
        .expect("applies");
    assert_eq!(
        entries(&live)[0].2,
        json!({"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:name":{}}}}})
    );
}

#[test]
fn the_first_apply_to_an_untracked_object_names_who_was_before() {
    let versions = pods();
    let mut live = settled(pod("p", json!({"containers":[{"name":"a","image":"one"}]})));
    live["metadata"]["uid"] = json!("u");
    let config = pod("p", json!({"containers":[{"name":"a","image":"two"}]}));
    let error = manager(&versions)
        .applied(&live, &config, "one", false)
        .expect_err("conflict");
    assert!(
        error
            .to_string()
            .contains("conflict with \"before-first-apply\" using v1"),
        "{error}"
    );
    let mut untouched = live.clone();
    manager(&versions).write(&live, &mut untouched, "writer");
    assert!(untouched["metadata"].get("managedFields").is_none());
}

#[test]
fn texts_of_bad_configurations() {
    let versions = pods();
    let apply = |config: Value| {
        manager(&versions)
            .applied(&empty(), &config, "one", false)
            .expect_err("refused")
            .to_string()
    };
    assert_eq!(
        apply(pod("p", json!({"colour":"red"}))),
        "failed to create typed patch object (/p; /v1, Kind=Pod): .spec.colour: field not declared in schema"
    );
    assert_eq!(
        apply(pod("p", json!({"containers":[{"name":"a"},{"name":"a"}]}))),
        "failed to create typed patch object (/p; /v1, Kind=Pod): .spec.containers: duplicate entries for key [name=\"a\"]"
    );
    assert_eq!(
        apply(json!({"apiVersion":"v1","kind":"Node"})),
        "invalid object type: /v1, Kind=Node"
    );
}

#[test]
fn a_missing_key_is_its_published_default() {
    let versions = pods();
    let config = pod(
        "p",
        json!({"containers":[{"image":"i","ports":[{"containerPort":80}]}]}),
    );
    let live = manager(&versions)
        .applied(&empty(), &config, "one", false)
        .expect("applies");
    assert_eq!(
        entries(&live)[0].2,
        json!({"f:spec":{"f:containers":{"k:{\"name\":\"\"}":{".":{},"f:image":{},
            "f:ports":{"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}}}}}})
    );
}

#[test]
fn entries_of_plain_writers_are_capped() {
    let versions = pods();
    let fields = manager(&versions);
    let mut live = settled(pod("p", json!({"containers":[{"name":"a"}]})));
    fields.write(&empty(), &mut live, "creator");
    for n in 0..15 {
        let mut next = live.clone();
        next["metadata"]["labels"][format!("l{n}")] = json!("x");
        fields.write(&live, &mut next, &format!("writer-{n:02}"));
        live = next;
    }
    let found = entries(&live);
    assert_eq!(found.len(), 10);
    assert!(
        found
            .iter()
            .any(|(manager, _, _)| manager == "ancient-changes")
    );
}

fn configs() -> impl Strategy<Value = Value> {
    let container = (0..3u8, prop::option::of(0..2u8)).prop_map(
        |(name, image)| json!({"name":format!("c{name}"),"image":image.map(|i| i.to_string())}),
    );
    let labels = prop::collection::btree_map("[a-c]", "[x-z]", 0..3);
    (
        prop::collection::vec(container, 1..4),
        labels,
        prop::option::of("n[0-9]"),
    )
        .prop_map(|(containers, labels, node)| {
            let mut seen = std::collections::BTreeSet::new();
            let containers: Vec<Value> = containers
                .into_iter()
                .filter(|c| seen.insert(c["name"].to_string()))
                .map(|mut c| {
                    if c["image"].is_null() {
                        c.as_object_mut().expect("object").remove("image");
                    }
                    c
                })
                .collect();
            let mut config = pod("p", json!({"containers":containers}));
            if !labels.is_empty() {
                config["metadata"]["labels"] = json!(labels);
            }
            if let Some(node) = node {
                config["spec"]["nodeName"] = json!(node);
            }
            config
        })
}

proptest! {
    #[test]
    fn applying_twice_changes_nothing(a in configs(), b in configs()) {
        let versions = pods();
        let fields = manager(&versions);
        let live = settled(fields.applied(&empty(), &a, "a", true).expect("a"));
        let live = settled(fields.applied(&live, &b, "b", true).expect("b"));
        let again = settled(fields.applied(&live, &b, "b", true).expect("again"));
        prop_assert_eq!(&again, &live);
        // What was applied is there.
        let set = merge::field_set(&b, Node::Struct(versions.node));
        let there = merge::field_set(&live, Node::Struct(versions.node));
        prop_assert!(set.difference(&there).is_empty());
    }

    #[test]
    fn dropping_everything_returns_to_the_other_appliers_object(a in configs(), b in configs()) {
        let versions = pods();
        let fields = manager(&versions);
        let alone = settled(fields.applied(&empty(), &a, "a", true).expect("a"));
        // Only fields that `a` does not own may come and go.
        let mut extra = b.clone();
        extra["spec"] = json!({});
        extra["metadata"]["labels"] = json!({"other":"x"});
        let both = settled(fields.applied(&alone, &extra, "b", false).expect("b"));
        let back = settled(fields.applied(&both, &pod("p", json!({})), "b", false).expect("back"));
        prop_assert_eq!(back["spec"].clone(), alone["spec"].clone());
        prop_assert_eq!(back["metadata"]["labels"].clone(), alone["metadata"]["labels"].clone());
    }
}

#[test]
fn only_owners_and_versions_differ_in_the_same_content() {
    let a =
        json!({"metadata":{"name":"a","resourceVersion":"1","managedFields":[]},"spec":{"x":1}});
    let b = json!({"metadata":{"name":"a","resourceVersion":"2"},"spec":{"x":1}});
    assert!(same_content(&a, &b));
    for other in [
        json!({"metadata":{"name":"b"},"spec":{"x":1}}),
        json!({"metadata":{"name":"a"},"spec":{"x":2}}),
        json!({"metadata":{"name":"a"}}),
        json!({"metadata":{"name":"a","labels":{}},"spec":{"x":1}}),
        Value::Null,
    ] {
        assert!(!same_content(&a, &other), "{other}");
        assert!(!same_content(&other, &a), "{other}");
    }
}

#[test]
fn writes_through_the_scale_have_no_time() {
    let versions = pods();
    let fields = FieldManager {
        subresource: "scale",
        ..manager(&versions)
    };
    let spec = |seconds: i64| pod("p", json!({"activeDeadlineSeconds": seconds}));
    let first = fields
        .applied(&empty(), &spec(1), "one", true)
        .expect("applies");
    let mut second = first.clone();
    second["spec"] = json!({"activeDeadlineSeconds": 2});
    fields.write(&first, &mut second, "two");
    for object in [first, second] {
        let entry = &object["metadata"]["managedFields"][0];
        assert_eq!(entry["subresource"], "scale");
        assert!(entry["time"].is_null(), "{entry}");
    }
}

#[test]
fn owners_are_read_as_they_were_written() {
    let versions = pods();
    let config = pod("p", json!({"containers":[{"name":"a\"","image":"i"}]}));
    let (_, owners) = manager(&versions)
        .apply(&empty(), &Managed::default(), &config, "one \\ two", true)
        .expect("applies");
    let mut text = Vec::new();
    owners.write_json(&mut text);
    let read: Managed = serde_json::from_slice(&text).expect("a list of entries");
    assert_eq!(read, owners);
    let mut later = read.clone();
    for entry in later.owners.values_mut() {
        entry.time = None;
    }
    assert!(later.same_but_times(&owners) && later != owners);
    assert!(!later.same_but_times(&Managed::default()));
    assert!(serde_json::from_str::<Managed>(r#"[{"operation":"Other"}]"#).is_err());
    assert!(
        serde_json::from_str::<Managed>("null")
            .expect("nobody")
            .is_empty()
    );
}

#[test]
fn the_last_applied_configuration_is_escaped_as_by_go() {
    let config = json!({"a": "x && y < z", "metadata": {"annotations": {LAST_APPLIED: "old"}}});
    let mut object = json!({"metadata": {"annotations": {LAST_APPLIED: "old"}}});
    refresh_last_applied(&mut object, &config);
    assert_eq!(
        object["metadata"]["annotations"][LAST_APPLIED],
        "{\"a\":\"x \\u0026\\u0026 y \\u003c z\",\"metadata\":{\"annotations\":{}}}\n"
    );
}
