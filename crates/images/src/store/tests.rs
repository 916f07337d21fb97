use std::sync::atomic::AtomicBool;

use jiff::Timestamp;

use super::*;
use crate::Reference;
use crate::fixtures::{Built, Layer, gzip, store};
use crate::manifest::Descriptor;

fn add(store: &Store, image: &Built, name: &str) -> Image {
    for blob in &image.blobs {
        store.put_blob(blob).unwrap();
    }
    store.put_blob(&image.manifest).unwrap();
    let target = Descriptor::of(image.media_type, &image.manifest);
    let new = NewImage {
        name: Reference::parse(name).unwrap().with_default_tag().key(),
        repository: None,
        manifest: target.digest.clone(),
        target,
    };
    let image = store.inspect(&new).unwrap();
    store.unpack(&image, &AtomicBool::new(false)).unwrap();
    store.add(&new, Timestamp::now()).unwrap()
}

fn other() -> Built {
    Built::new(&[(Layer::new().file("other", "content").tar(), gzip)])
}

#[test]
fn names_move_and_content_without_a_name_is_removed() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path());
    let first = add(&store, &Built::simple(), "app:1");
    add(&store, &Built::simple(), "same:1");
    let second = add(&store, &other(), "app:1");
    assert_ne!(first.id, second.id);
    let names: Vec<String> = store
        .list()
        .unwrap()
        .into_iter()
        .map(|image| image.name)
        .collect();
    assert_eq!(
        names,
        ["docker.io/library/app:1", "docker.io/library/same:1"]
    );
    assert_eq!(store.prune().unwrap(), 0);
    let removed = store.remove("same:1").unwrap();
    assert!(removed.freed > 0);
    assert!(!store.has_blob(&first.id) && !store.layer_path(&first.config.diff_ids[0]).exists());
    assert!(matches!(store.remove("same:1"), Err(Error::NotFound(_))));
    let removed = store.remove(second.id.as_str()).unwrap();
    assert_eq!(removed.names, ["docker.io/library/app:1"]);
    assert!(store.list().unwrap().is_empty());
}

#[test]
fn what_is_held_stays_without_a_name() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path());
    let image = add(&store, &Built::simple(), "app:1");
    store.hold("container-1", &image).unwrap();
    assert_eq!(store.remove("app:1").unwrap().freed, 0);
    let layer = store
        .layer_path(&image.config.diff_ids[0])
        .join("fs/etc/passwd");
    assert!(layer.exists());
    assert_eq!(store.held().unwrap(), ["container-1"]);
    store.release("container-1").unwrap();
    store.release("container-1").unwrap();
    assert!(store.prune().unwrap() > 0);
    assert!(!layer.exists());
    assert!(matches!(store.hold("../x", &image), Err(Error::Config(_))));
}

#[test]
fn what_is_being_pulled_stays_until_the_pull_ends() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path());
    let mut lease = store.lease().unwrap();
    let digest = Digest::of(b"content");
    lease.extend([digest.clone()]).unwrap();
    store.put_blob(b"content").unwrap();
    let another = Store::open(store.root(), Limits::default(), Timeouts::default()).unwrap();
    another.prune().unwrap();
    assert!(store.has_blob(&digest));
    drop(lease);
    another.prune().unwrap();
    assert!(!store.has_blob(&digest));
    // The lease of a process that was killed: its file exists, its lock does not.
    let text = serde_json::to_vec(&[&digest]).unwrap();
    std::fs::write(store.path("leases").join("pull-left"), text).unwrap();
    std::fs::create_dir(store.path("tmp").join("left")).unwrap();
    store.put_blob(b"content").unwrap();
    another.prune().unwrap();
    assert!(!store.has_blob(&digest));
    assert!(!store.path("tmp").join("left").exists() && store.0.scratch.exists());
}

#[test]
fn blobs_are_checked_and_resumed() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path());
    let digest = Digest::of(b"hello");
    let mut writer = store.begin(&digest, 5).unwrap();
    writer.write(b"he").unwrap();
    drop(writer);
    let mut writer = store.begin(&digest, 5).unwrap();
    assert_eq!(writer.written(), 2);
    // A second writer does not wait, and does not share the file.
    let mut second = store.begin(&digest, 5).unwrap();
    assert_eq!(second.written(), 0);
    second.write(b"hello").unwrap();
    writer.write(b"llo").unwrap();
    writer.commit().unwrap();
    second.commit().unwrap();
    assert_eq!(store.read_blob(&digest, 5).unwrap(), b"hello");
    assert!(matches!(
        store.read_blob(&digest, 4),
        Err(Error::TooLarge(_))
    ));
    let other = Digest::of(b"other");
    let mut writer = store.begin(&other, 5).unwrap();
    writer.write(b"wrong").unwrap();
    assert!(matches!(writer.commit(), Err(Error::Corrupt { .. })));
    assert_eq!(store.begin(&other, 5).unwrap().written(), 0);
    let mut writer = store.begin(&other, 5).unwrap();
    assert!(matches!(
        writer.write(b"longer than told"),
        Err(Error::Size { .. })
    ));
    assert!(matches!(
        store.begin(&other, u64::MAX),
        Err(Error::TooLarge(_))
    ));
    // A disk that changed its mind.
    std::fs::write(store.blob_path(&digest), "hullo").unwrap();
    assert!(matches!(
        store.read_blob(&digest, 5),
        Err(Error::Corrupt { .. })
    ));
}

/// Only the blob that fails was removed, and not what had come of the others.
#[test]
fn regression_nothing_is_left_of_blobs_that_are_discarded() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path());
    let digests = [
        Digest::of(b"left"),
        Digest::of(b"busy"),
        Digest::of(b"none"),
    ];
    let mut left = store.begin(&digests[0], 4).unwrap();
    left.write(b"le").unwrap();
    drop(left);
    let mut busy = store.begin(&digests[1], 4).unwrap();
    busy.write(b"bu").unwrap();
    store.discard(&digests);
    assert_eq!(store.begin(&digests[0], 4).unwrap().written(), 0);
    busy.write(b"sy").unwrap();
    busy.commit().unwrap();
}

/// Too many open files, for example.
#[test]
fn regression_an_image_that_cannot_be_read_for_now_keeps_its_layers() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path());
    let image = add(&store, &Built::simple(), "app:1");
    let (path, aside) = (store.blob_path(&image.id), directory.path().join("aside"));
    std::fs::rename(&path, &aside).unwrap();
    std::fs::create_dir(&path).unwrap();
    assert!(matches!(store.prune(), Err(Error::Io(..))));
    std::fs::remove_dir(&path).unwrap();
    std::fs::rename(&aside, &path).unwrap();
    assert_eq!(store.prune().unwrap(), 0);
    assert!(store.layer_path(&image.config.diff_ids[0]).exists());
}

#[test]
fn a_store_opens_again_and_images_with_holes_are_not_found() {
    let directory = tempfile::tempdir().unwrap();
    let image = add(&store(directory.path()), &Built::simple(), "app:1");
    let store = store(directory.path());
    let reference = Reference::parse("app:1").unwrap();
    assert_eq!(store.find(&reference).unwrap(), Some(image.clone()));
    std::fs::remove_file(store.blob_path(&image.layers[0].digest)).unwrap();
    assert_eq!(store.find(&reference).unwrap(), None);
    // Unpacked layers do not need their blobs.
    store.unpack(&image, &AtomicBool::new(false)).unwrap();
    std::fs::write(store.path("index.json"), "{").unwrap();
    assert!(matches!(store.prune(), Err(Error::Config(_))));
    assert!(store.has_blob(&image.id));
}

#[test]
fn an_image_is_merged_where_there_is_no_overlayfs() {
    let directory = tempfile::tempdir().unwrap();
    let store = store(directory.path());
    let lower = Layer::new().file("a", "1").file("b", "1").tar();
    let upper = Layer::new().file(".wh.a", "").file("b", "2").tar();
    let image = add(
        &store,
        &Built::new(&[(lower, gzip), (upper, gzip)]),
        "app:1",
    );
    let target = directory.path().join("merged");
    std::fs::create_dir(&target).unwrap();
    store
        .unpack_merged(&image, &target, &AtomicBool::new(false))
        .unwrap();
    assert!(!target.join("a").exists());
    assert_eq!(std::fs::read_to_string(target.join("b")).unwrap(), "2");
}
