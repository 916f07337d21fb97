use super::*;

/// The plan for one slice on a node.
fn plan(scope: &Scope, existing: Vec<&ResourceSlice>) -> Plan {
    let target = Target {
        driver: "gpu.example.com",
        scope,
        pool: "n1",
    };
    Plan::new(&target, Some(&pool(&[&["a"]])), existing, &Stored::new())
}

fn label(name: &str) -> (String, String) {
    (name.to_owned(), "true".to_owned())
}

/// Slices of a driver that had no labels get them, and keep what others wrote.
#[test]
fn slices_have_the_labels() {
    let mut scope = on_node("n1", "u1");
    let mut slice = plan(&scope, Vec::new()).create.remove(0).1;
    assert_eq!(slice.metadata.labels, None);
    slice.metadata.name = Some("s".into());
    slice.metadata.labels = Some(BTreeMap::from([label("other")]));
    scope.labels = BTreeMap::from([("heeds".to_owned(), Some("true".to_owned()))]);
    let created = plan(&scope, Vec::new()).create.remove(0).1;
    let heeds = BTreeMap::from([label("heeds")]);
    assert_eq!(created.metadata.labels, Some(heeds));
    let updated = plan(&scope, vec![&slice]).update.remove(0).1;
    let both = BTreeMap::from([label("heeds"), label("other")]);
    assert_eq!(updated.metadata.labels, Some(both));
    assert!(plan(&scope, vec![&updated]).update.is_empty());
}

/// The label stayed when the driver ran without injected failures later: a failure was noted, and no driver heeded it.
#[test]
fn regression_a_label_of_an_earlier_run_goes() {
    let mut scope = on_node("n1", "u1");
    scope.labels = BTreeMap::from([("heeds".to_owned(), Some("true".to_owned()))]);
    let mut slice = plan(&scope, Vec::new()).create.remove(0).1;
    slice.metadata.name = Some("s".into());
    let labels = slice.metadata.labels.get_or_insert_default();
    labels.extend([label("other")]);
    assert!(plan(&scope, vec![&slice]).update.is_empty());
    scope.labels = BTreeMap::from([("heeds".to_owned(), None)]);
    let updated = plan(&scope, vec![&slice]).update.remove(0).1;
    let other = BTreeMap::from([label("other")]);
    assert_eq!(updated.metadata.labels, Some(other));
    assert!(plan(&scope, vec![&updated]).update.is_empty());
    let created = plan(&scope, Vec::new()).create.remove(0).1;
    assert_eq!(created.metadata.labels, None);
}
