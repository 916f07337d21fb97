use std::sync::atomic::AtomicBool;

use super::*;
use crate::fixtures::{Built, Layer, gzip, store};
use crate::import::import;

/// Adds an image with its own file to a store, and returns its id.
fn add(store: &Store, directory: &Path, name: &str) -> String {
    let image = Built::new(&[(Layer::new().file(name, &"x".repeat(1000)).tar(), gzip)]);
    let path = crate::import::fixtures::layout(directory, &image, name);
    let name = crate::Reference::parse(name).unwrap();
    import(store, &path, Some(&name), &AtomicBool::new(false))
        .unwrap()
        .remove(0)
        .id
        .to_string()
}

fn usage(used_percent: u64) -> impl Fn() -> Result<Usage> {
    move || {
        Ok(Usage {
            capacity: 100_000,
            available: 100_000 - used_percent * 1000,
        })
    }
}

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn a_full_disk_takes_the_longest_unused_first() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path());
    let ids = ["a:1", "b:1", "c:1"].map(|name| add(&store, directory.path(), name));
    let start = Instant::now();
    let mut collector = Collector::new(Policy::default(), start).unwrap();
    let used = |which: &[usize]| {
        which
            .iter()
            .map(|index| ids[*index].clone())
            .collect::<BTreeSet<_>>()
    };
    // All in use, then only the last; nothing is full.
    let mut collect = |in_use: &[usize], percent, now| {
        collector
            .collect(&store, &used(in_use), &usage(percent), now)
            .unwrap()
    };
    assert_eq!(collect(&[0, 1, 2], 84, start), Collected::default());
    assert_eq!(collect(&[0, 2], 84, start + MINUTE), Collected::default());
    // Too young.
    let done = collect(&[2], 90, start + MINUTE);
    assert!(done.removed.is_empty() && done.warning.is_some());
    // Less than one image is wanted: the least recently used one is removed.
    let done = collect(&[2], 85, start + MINUTE * 3);
    assert_eq!(done.removed[0], ids[1]);
    // More than exists: used images stay, and the kubelet's message is returned.
    let done = collect(&[2], 99, start + MINUTE * 4);
    assert!(!done.removed.contains(&ids[2]));
    let (reason, message) = done.warning.unwrap();
    assert_eq!(reason, "FreeDiskSpaceFailed");
    assert!(message.starts_with("Insufficient free disk space on the node's image filesystem (99% of 97.7 KiB used). Failed to free"), "{message}");
    assert_eq!(store.list().unwrap().len(), 1);
}

#[test]
fn all_unused_images_go_when_the_node_needs_their_space() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path());
    let ids = ["a:1", "b:1", "c:1"].map(|name| add(&store, directory.path(), name));
    let start = Instant::now();
    let mut collector = Collector::new(Policy::default(), start).unwrap();
    let in_use = BTreeSet::from([ids[1].clone()]);
    let mut collect = |now| collector.collect_unused(&store, &in_use, now).unwrap();
    // Too young.
    assert_eq!(collect(start), Collected::default());
    let mut removed = collect(start + MINUTE * 2).removed;
    removed.sort();
    let mut expected = vec![ids[0].clone(), ids[2].clone()];
    expected.sort();
    assert_eq!(removed, expected);
    assert_eq!(store.list().unwrap().len(), 1);
}

#[test]
fn old_images_go_without_need() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path());
    let ids = ["a:1", "b:1"].map(|name| add(&store, directory.path(), name));
    let start = Instant::now();
    let policy = Policy {
        max_age: MINUTE * 10,
        ..Policy::default()
    };
    let mut collector = Collector::new(policy, start).unwrap();
    let in_use = BTreeSet::from([ids[0].clone()]);
    let mut collect = |now| collector.collect(&store, &in_use, &usage(1), now).unwrap();
    assert!(collect(start).removed.is_empty());
    assert!(collect(start + MINUTE * 10).removed.is_empty());
    assert_eq!(collect(start + MINUTE * 11).removed, [ids[1].clone()]);
}

#[test]
fn thresholds_have_to_make_sense() {
    let check = |high, low, expected: &str| {
        let policy = Policy {
            high_threshold_percent: high,
            low_threshold_percent: low,
            ..Policy::default()
        };
        let error = Collector::new(policy, Instant::now())
            .err()
            .map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some(expected));
    };
    check(
        101,
        80,
        "invalid HighThresholdPercent 101, must be in range [0-100]",
    );
    check(
        80,
        85,
        "LowThresholdPercent 85 can not be higher than HighThresholdPercent 80",
    );
    let usage = Usage::of(Path::new("/")).unwrap();
    assert!(usage.available <= usage.capacity);
}
