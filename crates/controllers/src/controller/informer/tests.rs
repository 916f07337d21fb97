use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;

fn map(name: &str, uid: &str, version: u64, label: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            namespace: Some("ns".to_owned()),
            name: Some(name.to_owned()),
            uid: Some(uid.to_owned()),
            resource_version: Some(version.to_string()),
            labels: Some([("l".to_owned(), label.to_owned())].into()),
            ..Default::default()
        },
        ..Default::default()
    }
}

fn label(obj: &ConfigMap) -> Vec<String> {
    obj.metadata
        .labels
        .iter()
        .flatten()
        .map(|(_, v)| v.clone())
        .collect()
}

/// An informer and the changes its handlers received, in short form.
fn informer() -> (Informer<ConfigMap>, Arc<Mutex<Vec<String>>>) {
    let informer = Informer::new();
    informer.index("label", label);
    let told = Arc::new(Mutex::new(Vec::new()));
    let log = told.clone();
    let reader = informer.clone();
    informer.on(move |change| {
        let obj = change.object();
        let name = obj.metadata.name.as_deref().unwrap();
        let version = obj.metadata.resource_version.as_deref().unwrap();
        let kind = match change {
            Change::Added(_) => "add",
            Change::Updated(..) => "update",
            Change::Deleted(_) => "delete",
        };
        // The store already has the new state when a handler runs.
        if kind != "delete" {
            assert!(reader.find("ns", name).is_some());
        }
        log.lock().push(format!("{kind} {name}@{version}"));
    });
    (informer, told)
}

fn names(found: &[Arc<ConfigMap>]) -> Vec<&str> {
    found
        .iter()
        .map(|o| o.metadata.name.as_deref().unwrap())
        .collect()
}

#[test]
fn a_relist_is_delivered_as_changes() {
    let (informer, told) = informer();
    informer.replace(vec![map("a", "1", 1, "x"), map("b", "2", 2, "x")]);
    assert!(informer.is_synced());
    told.lock().clear();
    // b was deleted and c created while no watch was open; a is unchanged.
    informer.replace(vec![map("a", "1", 1, "x"), map("c", "3", 9, "y")]);
    assert_eq!(*told.lock(), ["delete b@2", "add c@9"]);
    assert_eq!(names(&informer.by_index("label", "x")), ["a"]);
    assert_eq!(names(&informer.by_index("label", "y")), ["c"]);
}

#[test]
fn an_object_of_the_same_name_is_another_object() {
    let (informer, told) = informer();
    informer.replace(vec![map("a", "1", 1, "x")]);
    informer.apply(map("a", "2", 5, "y"));
    assert_eq!(told.lock().last().map(String::as_str), Some("add a@5"));
    assert_eq!(told.lock()[1], "delete a@1");
    assert!(informer.by_index("label", "x").is_empty());
}

#[test]
fn own_writes_show_at_once_and_only_once() {
    let (informer, told) = informer();
    informer.replace(vec![map("a", "1", 1, "x")]);
    told.lock().clear();
    informer.assume(map("b", "2", 5, "x"));
    informer.assume(map("a", "1", 6, "y"));
    assert_eq!(names(&informer.by_index("label", "x")), ["b"]);
    // The watch delivers the same, and an older state before it.
    informer.apply(map("a", "1", 4, "z"));
    informer.apply(map("b", "2", 5, "x"));
    informer.apply(map("a", "1", 6, "y"));
    assert_eq!(*told.lock(), ["add b@5", "update a@6"]);
}

#[test]
fn a_late_answer_does_not_restore_a_deleted_object() {
    let (informer, told) = informer();
    informer.replace(vec![]);
    // Created at 5, deleted at 7; the answer to the creation comes last.
    informer.apply(map("a", "1", 5, "x"));
    informer.delete(&map("a", "1", 7, "x"));
    informer.assume(map("a", "1", 5, "x"));
    assert!(informer.is_empty());
    assert_eq!(*told.lock(), ["add a@5", "delete a@7"]);
}

#[test]
fn own_deletions_show_at_once() {
    let (informer, told) = informer();
    informer.replace(vec![map("a", "1", 1, "x")]);
    informer.assume_gone(&map("a", "1", 1, "x"));
    assert!(informer.is_empty());
    // The watch still has older news of it, and then the deletion.
    informer.apply(map("a", "1", 2, "y"));
    assert!(informer.is_empty());
    informer.delete(&map("a", "1", 3, "y"));
    informer.apply(map("a", "2", 4, "x"));
    assert_eq!(*told.lock(), ["add a@1", "delete a@1", "add a@4"]);
}

#[test]
fn keys_join_and_split() {
    assert_eq!(key(Some("ns"), "a"), "ns/a");
    assert_eq!(key(None, "a"), "a");
    assert_eq!(split_key("ns/a"), ("ns", "a"));
    assert_eq!(split_key("a"), ("", "a"));
}
