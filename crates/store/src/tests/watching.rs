//! Watches are gap-free, free of duplicates, and in order.

use std::sync::Arc;

use super::*;
use crate::{Error, EventKind};

#[test]
fn a_watch_tells_what_changed() {
    let store = in_memory();
    let mut watcher = store.watch(COLLECTION, "a", 0).unwrap();
    let a = create(&store, "a1", "one");
    create(&store, "b1", "other");
    let a = update(&store, "a1", a, "two");
    delete(&store, "a1", a);
    let seen: Vec<_> = watcher
        .poll_changes()
        .unwrap()
        .iter()
        .map(|event| (event.kind, event.previous.as_ref().map(|it| it.revision)))
        .collect();
    assert_eq!(
        seen,
        [
            (EventKind::Added, None),
            (EventKind::Modified, Some(1)),
            (EventKind::Deleted, Some(3))
        ]
    );
    assert_eq!(watcher.position(), store.revision());
    assert!(matches!(
        store.watch(COLLECTION, "", 99).err(),
        Some(Error::Future { .. })
    ));
}

#[test]
fn an_encoding_is_made_once_for_all_watchers() {
    let store = in_memory();
    let mut watchers = [
        store.watch(COLLECTION, "", 0).unwrap(),
        store.watch(COLLECTION, "", 0).unwrap(),
    ];
    create(&store, "a", "x");
    let mut made = 0;
    for watcher in &mut watchers {
        for event in watcher.poll_changes().unwrap() {
            event.encoding(1, |event| {
                made += 1;
                event.entry.value.clone()
            });
        }
    }
    assert_eq!(made, 1);
}

/// Writers and watchers at the same time, on a real file: every watcher sees every revision once, in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_watchers_miss_nothing() {
    const WRITERS: u64 = 8;
    const EACH: u64 = 50;
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(Embedded::open(directory.path(), Options::default()).unwrap());
    let watchers: Vec<_> = (0..4)
        .map(|_| {
            let mut watcher = store.watch(COLLECTION, "", 0).unwrap();
            tokio::spawn(async move {
                let mut seen = Vec::new();
                while (seen.len() as u64) < WRITERS * EACH {
                    seen.extend(
                        watcher
                            .changes()
                            .await
                            .unwrap()
                            .iter()
                            .map(|event| event.revision()),
                    );
                }
                seen
            })
        })
        .collect();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for number in 0..EACH {
                    let entry = store
                        .commit(put(&format!("{writer}-{number}"), Expect::Absent, "x"))
                        .await
                        .unwrap();
                    // What was acknowledged is readable at once.
                    let read = store.get(COLLECTION, &entry.key).await.unwrap().unwrap();
                    assert_eq!(read.revision, entry.revision);
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let all: Vec<u64> = (1..=WRITERS * EACH).collect();
    for watcher in watchers {
        let seen = tokio::time::timeout(std::time::Duration::from_secs(120), watcher)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(seen, all);
    }
}
