use serde_json::{Value, json};

use super::*;

fn kind() -> Arc<Kind> {
    Arc::new(Kind::for_tests("", "v1", "ConfigMap", "configmaps"))
}

fn object(uid: &str, owners: &[(&str, bool)], more: Value) -> Arc<MetaObject> {
    let owners: Vec<Value> = owners
        .iter()
        .map(|(o, block)| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": o, "uid": o, "blockOwnerDeletion": block})
        })
        .collect();
    let mut metadata =
        json!({"name": uid, "namespace": "ns", "uid": uid, "ownerReferences": owners});
    for (key, value) in more.as_object().into_iter().flatten() {
        metadata[key.as_str()] = value.clone();
    }
    Arc::new(serde_json::from_value(json!({"metadata": metadata})).unwrap())
}

fn foreground() -> Value {
    json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [FOREGROUND]})
}

#[test]
fn an_object_with_live_owners_is_no_work() {
    let (mut graph, kind) = (Graph::default(), kind());
    assert!(graph.upsert(&kind, &object("a", &[], json!({}))).is_empty());
    assert!(
        graph
            .upsert(&kind, &object("b", &[("a", false)], json!({})))
            .is_empty()
    );
    // An owner that is not known yet has to be looked for.
    assert_eq!(
        graph.upsert(&kind, &object("c", &[("x", false)], json!({}))),
        ["c"]
    );
    assert!(graph.has_dependents("a"));
}

#[test]
fn a_deleted_owner_makes_work_of_its_dependents() {
    let (mut graph, kind) = (Graph::default(), kind());
    graph.upsert(&kind, &object("a", &[], json!({})));
    graph.upsert(&kind, &object("b", &[("a", false)], json!({})));
    assert_eq!(graph.remove("a"), ["b"]);
    let node = graph.node("b").unwrap();
    assert_eq!(graph.judge(&node, &node.owners()[0]), Some(Verdict::Gone));
}

#[test]
fn a_reference_with_wrong_coordinates_is_not_trusted() {
    let (mut graph, kind) = (Graph::default(), kind());
    graph.upsert(&kind, &object("a", &[], json!({})));
    let mut b = MetaObject::clone(&object("b", &[("a", false)], json!({})));
    b.metadata.owner_references.as_mut().unwrap()[0].name = "other".to_owned();
    assert_eq!(
        graph.upsert(&kind, &Arc::new(b)),
        ["b"],
        "the API server is asked"
    );
}

#[test]
fn foreground_deletion_waits_for_blocking_dependents_only() {
    let (mut graph, kind) = (Graph::default(), kind());
    graph.upsert(&kind, &object("a", &[], json!({})));
    graph.upsert(&kind, &object("b", &[("a", true)], json!({})));
    graph.upsert(&kind, &object("c", &[("a", false)], json!({})));
    let mut work = graph.upsert(&kind, &object("a", &[], foreground()));
    work.sort();
    assert_eq!(work, ["a", "b", "c"]);
    let node = graph.node("b").unwrap();
    assert_eq!(
        graph.judge(&node, &node.owners()[0]),
        Some(Verdict::Waiting)
    );
    assert!(graph.foreground_dependents("a").0);
    // The blocking one was deleted: the owner is processed again, the other one does not block it.
    assert_eq!(graph.remove("b"), ["a"]);
    assert_eq!(
        graph.foreground_dependents("a"),
        (false, vec!["c".to_owned()])
    );
}

#[test]
fn edges_follow_the_owner_references() {
    let (mut graph, kind) = (Graph::default(), kind());
    graph.upsert(&kind, &object("a", &[], json!({})));
    graph.upsert(&kind, &object("b", &[("a", false)], json!({})));
    graph.upsert(&kind, &object("b", &[], json!({})));
    assert!(!graph.has_dependents("a"));
    assert!(graph.remove("a").is_empty());
}
