//! The images in a node's status, by which a scheduler prefers nodes that have the images of a pod.

use std::collections::{BTreeMap, BTreeSet};

use allot_images::Image;
use serde_json::{Value, json};

use super::Images;

/// Images and names of an image that are reported at most, as by a kubelet.
const MOST: (usize, usize) = (50, 5);

impl Images {
    /// The images of the node, the largest first; `None` if they cannot be read.
    pub(crate) async fn reported(&self) -> Option<Value> {
        let store = self.store().clone();
        let listed = tokio::task::spawn_blocking(move || store.list()).await;
        match listed {
            Ok(Ok(images)) => Some(report(&images)),
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
