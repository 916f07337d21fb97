//! Watches are gap-free, free of duplicates, and in order.

use std::sync::Arc;

use super::*;
use crate::{Error, Event, EventKind};

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

/// After a burst every change remained in memory twice, in its stored form and in its encoding for watchers.
#[test]
fn encodings_of_old_changes_are_not_kept() {
    use crate::state::SHARED_ENCODINGS;
    let store = in_memory();
    let mut watcher = store.watch(COLLECTION, "", 0).unwrap();
    create(&store, "old", "x");
    let old = watcher.poll_changes().unwrap();
    let bytes = |event: &Event| event.entry.value.clone();
    let kept = old[0].encoding(1, bytes);
    for index in 0..SHARED_ENCODINGS {
        create(&store, &format!("new-{index}"), "x");
    }
    let mut made = 0;
    let again = old[0].encoding(1, |event| {
        made += 1;
        bytes(event)
    });
    assert_eq!((made, again), (1, kept));
    let newest = watcher.poll_changes().unwrap();
    assert_ne!(newest.len(), 0);
    for _ in 0..2 {
        newest[0].encoding(1, |event| {
            made += 1;
            bytes(event)
        });
    }
    assert_eq!(made, 2);
}

/// What watchers were sent last remained in memory a second time until the next thousand changes.
#[test]
fn encodings_are_given_back_when_no_more_changes_come() {
    let store = in_memory();
    let start = std::time::Instant::now();
    let mut watcher = store.watch(COLLECTION, "", 0).unwrap();
    let mut encoded = 0;
    let mut encode = |event: &Event| {
        event.encoding(1, |event| {
            encoded += 1;
            event.entry.value.clone()
        });
        encoded
    };
    create(&store, "a", "x");
    let a = watcher.poll_changes().unwrap().remove(0);
    assert_eq!(encode(&a), 1);
    store.tidy(start);
    create(&store, "b", "x");
    let b = watcher.poll_changes().unwrap().remove(0);
    assert_eq!(encode(&b), 2);
    // Up to the next run watchers may still come for it.
    assert_eq!(encode(&a), 2);
    store.tidy(start);
    assert_eq!((encode(&a), encode(&b)), (3, 3));
    // Nothing is kept of it again, and then nothing of the newer one, either.
    assert_eq!(encode(&a), 4);
    store.tidy(start);
    assert_eq!(encode(&b), 5);
}

/// A burst remained in memory until the same number of changes followed.
#[test]
fn old_changes_are_given_back() {
    use crate::state::{FRESH, KEPT};
    let store = in_memory();
    let start = std::time::Instant::now();
    for index in 0..KEPT + 3 {
        create(&store, &format!("a{index}"), "x");
    }
    let burst = store.revision();
    store.tidy(start);
    create(&store, "b", "x");
    // No change has expired yet.
    store.tidy(start + FRESH / 2);
    assert_eq!(all(&store, 0).unwrap().len() as u64, burst + 1);
    store.tidy(start + FRESH);
    assert!(matches!(
        all(&store, 0),
        Err(Error::Expired { oldest: 4, .. })
    ));
    // The minimum number of changes is kept, including the newest.
    assert_eq!(all(&store, 4).unwrap().len(), KEPT);
    for index in 0..KEPT {
        create(&store, &format!("c{index}"), "x");
    }
    store.tidy(start + FRESH + FRESH / 2 - std::time::Duration::from_secs(1));
    // The last change is recent, and the rest of the burst has the same age as before.
    assert_eq!(all(&store, 4).unwrap().len(), 2 * KEPT);
    store.tidy(start + FRESH * 2);
    assert_eq!(all(&store, burst + 1).unwrap().len(), KEPT);
    assert!(all(&store, burst).is_err());
}

fn all(store: &Embedded, from: u64) -> Result<Vec<u64>, Error> {
    let mut watcher = store.watch(COLLECTION, "", from)?;
    let mut seen = Vec::new();
    loop {
        let events = watcher.poll_changes()?;
        if events.is_empty() {
            return Ok(seen);
        }
        seen.extend(events.iter().map(|event| event.revision()));
    }
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
