//! The images in a node's status, by which a scheduler prefers nodes that have the images of a pod.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use allot_images::Image;
use serde_json::{Value, json};

use super::Images;

/// Images and names of an image that are reported at most, as by a kubelet.
const MOST: (usize, usize) = (50, 5);

/// How long a list counts while the index of the store is the same.
const LONGEST: Duration = Duration::from_secs(60);

/// What tells one state of the index from another: its file is replaced with every change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Version {
    inode: u64,
    modified: (i64, i64),
    size: u64,
}

impl Version {
    fn of(index: &Path) -> Option<Self> {
        let metadata = std::fs::metadata(index).ok()?;
        Some(Self {
            inode: metadata.ino(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            size: metadata.size(),
        })
    }
}

/// A list of images, and when it was read.
pub(super) struct Listed {
    version: Option<Version>,
    at: Instant,
    report: Value,
}

impl Images {
    /// The images of the node, the largest first; `None` if they cannot be read.
    pub(crate) async fn reported(&self) -> Option<Value> {
        let store = self.store().clone();
        let (version, at) = (
            Version::of(&store.root().join("index.json")),
            Instant::now(),
        );
        if let Some(listed) = &*self.listed.lock()
            && listed.version == version
            && at.duration_since(listed.at) < LONGEST
        {
            return Some(listed.report.clone());
        }
        let listed = tokio::task::spawn_blocking(move || store.list()).await;
        match listed {
            Ok(Ok(images)) => {
                let report = report(&images);
                *self.listed.lock() = Some(Listed {
                    version,
                    at,
                    report: report.clone(),
                });
                Some(report)
            }
            Ok(Err(error)) => {
                tracing::warn!(%error, "the images of the node were not read");
                None
            }
            Err(_) => None,
        }
    }
}

fn report(images: &[Image]) -> Value {
    let mut by_id = BTreeMap::<String, (u64, BTreeSet<String>, BTreeSet<String>)>::new();
    for image in images {
        let (size, digests, names) = by_id.entry(image.id.to_string()).or_default();
        *size = image.size;
        if let Some(repository) = &image.repository {
            digests.insert(format!("{repository}@{}", image.target));
        }
        names.insert(image.name.clone());
    }
    let mut all: Vec<_> = by_id.into_values().collect();
    all.sort_by_key(|(size, ..)| std::cmp::Reverse(*size));
    let shown = all.into_iter().take(MOST.0);
    let shown = shown.map(|(size, mut digests, names)| {
        // Each name once: an image that was pulled by its digest has that as its name.
        digests.extend(names.iter().filter(|name| name.contains('@')).cloned());
        let names = names.into_iter().filter(|name| !name.contains('@'));
        let names: Vec<String> = digests.into_iter().chain(names).take(MOST.1).collect();
        json!({"names": names, "sizeBytes": size})
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_that_was_replaced_is_another() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let index = directory.path().join("index.json");
        assert_eq!(Version::of(&index), None);
        std::fs::write(&index, "one").expect("a file");
        let before = Version::of(&index);
        assert!(before.is_some());
        assert_eq!(Version::of(&index), before);
        let next = directory.path().join("next");
        std::fs::write(&next, "two").expect("a file");
        std::fs::rename(&next, &index).expect("a file");
        assert_ne!(Version::of(&index), before);
    }
}
