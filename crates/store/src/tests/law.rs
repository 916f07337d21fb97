//! Any sequence of writes leaves what a map would hold, now and at every revision before.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{Error, Size};

#[derive(Debug, Clone)]
enum Step {
    Create(u8),
    Update(u8, bool),
    Delete(u8, bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0..6u8;
    let step = prop_oneof![
        key.clone().prop_map(Step::Create),
        (key.clone(), any::<bool>()).prop_map(|(key, right)| Step::Update(key, right)),
        (key, any::<bool>()).prop_map(|(key, right)| Step::Delete(key, right)),
    ];
    proptest::collection::vec(step, 1..60)
}

fn shown(model: &BTreeMap<String, (u64, String)>) -> Vec<String> {
    model
        .iter()
        .map(|(key, (revision, text))| format!("{key}={text}@{revision}"))
        .collect()
}

proptest! {
    #[test]
    fn writes_behave_like_a_map(steps in steps()) {
        let store = in_memory();
        let mut model: BTreeMap<String, (u64, String)> = BTreeMap::new();
        let mut history = vec![(0, shown(&model))];
        for (number, step) in steps.into_iter().enumerate() {
            let text = number.to_string();
            let name = |key: u8| format!("k{key}");
            // A wrong revision is one that was never current for the key.
            let expected = |key: &str, right: bool| {
                model.get(key).map_or(1, |(revision, _)| if right { *revision } else { revision + 1000 })
            };
            let result = match &step {
                Step::Create(key) => store.commit_blocking(put(&name(*key), Expect::Absent, &text)),
                Step::Update(key, right) => {
                    let expect = Expect::Revision(expected(&name(*key), *right));
                    store.commit_blocking(put(&name(*key), expect, &text))
                }
                Step::Delete(key, right) => {
                    let revision = expected(&name(*key), *right);
                    store.commit_blocking(Write::delete(COLLECTION, name(*key), revision, draft("gone")))
                }
            };
            match (step, result) {
                (Step::Create(key), Ok(entry)) => {
                    prop_assert!(model.insert(name(key), (entry.revision, text)).is_none());
                }
                (Step::Create(key), Err(Error::Exists(_))) => prop_assert!(model.contains_key(&name(key))),
                (Step::Update(key, true), Ok(entry)) => {
                    prop_assert!(model.insert(name(key), (entry.revision, text)).is_some());
                }
                (Step::Delete(key, true), Ok(_)) => prop_assert!(model.remove(&name(key)).is_some()),
                (Step::Update(key, _) | Step::Delete(key, _), Err(Error::NotFound)) => {
                    prop_assert!(!model.contains_key(&name(key)));
                }
                (Step::Update(key, false) | Step::Delete(key, false), Err(Error::Conflict(_))) => {
                    prop_assert!(model.contains_key(&name(key)));
                }
                (step, result) => prop_assert!(false, "{step:?} led to {result:?}"),
            }
            prop_assert_eq!(list(&store, None), shown(&model));
            let page = now(store.list(COLLECTION, ListOptions::default())).unwrap();
            let values = page.entries.iter().map(|entry| entry.value.len());
            let size = Size { entries: model.len(), bytes: values.sum() };
            prop_assert_eq!(store.size(COLLECTION), size);
            history.push((store.revision(), shown(&model)));
        }
        for (revision, state) in history {
            prop_assert_eq!(list(&store, Some(revision)), state, "at revision {}", revision);
        }
    }
}

#[test]
fn pages_join_to_the_whole() {
    let store = in_memory();
    for number in 0..10 {
        create(&store, &format!("k{number}"), "x");
    }
    let (mut after, mut seen, mut left) = (None::<String>, 0, Vec::new());
    loop {
        let options = ListOptions {
            after: after.as_deref(),
            limit: 4,
            ..ListOptions::default()
        };
        let page = now(store.list(COLLECTION, options)).unwrap();
        seen += page.entries.len();
        left.push(page.remaining);
        if page.remaining == 0 {
            break;
        }
        after = page.entries.last().map(|entry| entry.key.to_string());
    }
    assert_eq!((seen, left), (10, vec![6, 2, 0]));
}
