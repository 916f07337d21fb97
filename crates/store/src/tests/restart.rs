//! What was acknowledged is there after the store has been closed or killed.

use super::*;
use crate::{Error, FILE_NAME, check, compact, dump};

#[test]
fn a_restart_keeps_state_revisions_and_history() {
    let directory = tempfile::tempdir().unwrap();
    let open = || Embedded::open(directory.path(), Options::default()).unwrap();
    let store = open();
    let a = create(&store, "a", "one");
    let b = create(&store, "b", "one");
    update(&store, "a", a, "two");
    let last = delete(&store, "b", b);
    let (now_before, at_before) = (list(&store, None), list(&store, Some(b)));
    let size = store.size(COLLECTION);
    drop(store);
    let store = open();
    assert_eq!(store.size(COLLECTION), size);
    assert_eq!(store.revision(), last);
    assert_eq!(list(&store, None), now_before);
    assert_eq!(list(&store, Some(b)), at_before);
    let mut watcher = store.watch(COLLECTION, "", b).unwrap();
    let seen: Vec<u64> = watcher
        .poll_changes()
        .unwrap()
        .iter()
        .map(|event| event.revision())
        .collect();
    assert_eq!(seen, [b + 1, b + 2]);
    assert_eq!(create(&store, "c", "x"), last + 1);
}

/// All users of the machine could read the secrets in the store file.
#[test]
fn regression_the_file_is_its_owner_s_alone() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().expect("tempdir");
    let store = Embedded::open(directory.path(), Options::default()).expect("opens");
    drop(store);
    let file = directory.path().join(FILE_NAME);
    let mode = file.metadata().expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_second_process_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let _store = Embedded::open(directory.path(), Options::default()).unwrap();
    let error = Embedded::open(directory.path(), Options::default())
        .err()
        .unwrap();
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains(&directory.path().display().to_string()),
        "{error}"
    );
}

#[test]
fn damage_is_named_and_not_served() {
    let directory = tempfile::tempdir().unwrap();
    {
        let store = Embedded::open(directory.path(), Options::default()).unwrap();
        for number in 0..200 {
            create(&store, &format!("k{number}"), &"x".repeat(1000));
        }
    }
    let file = directory.path().join(FILE_NAME);
    let whole = std::fs::read(&file).unwrap();
    let at = whole
        .windows(64)
        .position(|part| part == [b'x'; 64])
        .unwrap();
    let mut damaged = whole.clone();
    damaged[at + 10] ^= 1;
    for content in [
        damaged,
        whole[..whole.len() / 2].to_vec(),
        Vec::new(),
        b"not a database".to_vec(),
    ] {
        std::fs::write(&file, content).unwrap();
        let error = Embedded::open(directory.path(), Options::default())
            .err()
            .unwrap();
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        assert!(error.to_string().contains(FILE_NAME), "{error}");
        assert!(check(directory.path()).is_err());
    }
}

#[test]
fn the_window_is_bounded_and_older_states_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options {
        window_events: 16,
        ..Options::default()
    };
    let store = Embedded::open(directory.path(), options.clone()).unwrap();
    let mut revision = create(&store, "a", "0");
    for number in 1..200 {
        revision = update(&store, "a", revision, &number.to_string());
    }
    let refused = |store: &Embedded| {
        matches!(
            store.watch(COLLECTION, "", 1).err(),
            Some(Error::Expired { .. })
        )
    };
    assert!(refused(&store));
    drop(store);
    let report = check(directory.path()).unwrap();
    assert!(report.window <= 18, "{} changes kept", report.window);
    assert_eq!(
        (report.revision, report.collections),
        (revision, vec![(COLLECTION.to_owned(), 1)])
    );
    let store = Embedded::open(directory.path(), options).unwrap();
    assert!(refused(&store));
    assert_eq!(list(&store, None), [format!("a=199@{revision}")]);
}

#[test]
fn compaction_keeps_the_present_and_the_counter() {
    let directory = tempfile::tempdir().unwrap();
    let store = Embedded::open(directory.path(), Options::default()).unwrap();
    let mut revision = create(&store, "a", "0");
    for number in 1..50 {
        revision = update(&store, "a", revision, &number.to_string().repeat(500));
    }
    let kept = list(&store, None);
    let gone = create(&store, "b", "x");
    let last = delete(&store, "b", gone);
    drop(store);
    let (before, after) = compact(directory.path()).unwrap();
    assert!(after < before, "{before} -> {after}");
    let mut out = Vec::new();
    dump(directory.path(), &mut out).unwrap();
    assert_eq!(String::from_utf8(out).unwrap().lines().count(), 1);
    let store = Embedded::open(directory.path(), Options::default()).unwrap();
    assert_eq!((store.revision(), list(&store, None)), (last, kept));
}

/// Raw fields of objects are stored with the space that was sent between their tokens.
#[test]
fn regression_a_dumped_object_is_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let store = Embedded::open(directory.path(), Options::default()).unwrap();
    let revision = create(&store, "a", "{\"x\" :\n\t[1,\r\n 2]}");
    drop(store);
    let mut out = Vec::new();
    dump(directory.path(), &mut out).unwrap();
    let wanted = format!("{COLLECTION}\ta\t{revision}\t{{\"x\" :[1, 2]}}@{revision}\n");
    assert_eq!(String::from_utf8(out).unwrap(), wanted);
}
