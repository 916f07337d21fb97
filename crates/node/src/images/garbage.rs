//! Removing images that no container uses when the disk is full, by the kubelet's rules.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allot_images::collect::{Collectable, Collected, Collector, Policy, Usage};
use allot_images::{Result, Store};
use k8s_openapi::api::core::v1::Node;

use crate::events::{Kind, Recorder};

/// The images that are collected. Its functions block.
pub(crate) trait Garbage: Collectable + Send + Sync {
    /// The ids of the images that are in use.
    fn in_use(&self) -> Result<BTreeSet<String>>;

    /// The space on their file system.
    fn usage(&self) -> Result<Usage>;
}

impl Garbage for Store {
    fn in_use(&self) -> Result<BTreeSet<String>> {
        let used = Store::in_use(self)?;
        Ok(used.iter().map(ToString::to_string).collect())
    }

    fn usage(&self) -> Result<Usage> {
        Usage::of(self.root())
    }
}

/// Runs the garbage collection of images every `period`.
pub(crate) async fn collect(
    images: Arc<dyn Garbage>,
    policy: Policy,
    period: Duration,
    events: Recorder,
    node: Node,
) {
    let mut collector = match Collector::new(policy, Instant::now()) {
        Ok(collector) => collector,
        Err(error) => {
            tracing::error!(%error, "images are not collected");
            return std::future::pending().await;
        }
    };
    loop {
        tokio::time::sleep(period).await;
        let images = Arc::clone(&images);
        let work = move || {
            let collected = images.in_use().and_then(|in_use| {
                let usage = || images.usage();
                collector.collect(&*images, &in_use, &usage, Instant::now())
            });
            (collector, collected)
        };
        let collected;
        (collector, collected) = match tokio::task::spawn_blocking(work).await {
            Ok(done) => done,
            // The process is about to end.
            Err(error) => {
                tracing::error!(%error, "images are not collected any more");
                return std::future::pending().await;
            }
        };
        match collected {
            Ok(collected) => record_event(&collected, &events, &node),
            Err(error) => events.node(&node, Kind::Warning, "ImageGCFailed", error.to_string()),
        }
    }
}

fn record_event(collected: &Collected, events: &Recorder, node: &Node) {
    for image in &collected.removed {
        tracing::info!(%image, freed = collected.freed, "image was removed");
    }
    for failure in &collected.failures {
        tracing::warn!(failure, "image was not removed");
    }
    if let Some((reason, message)) = &collected.warning {
        events.node(node, Kind::Warning, reason, message.clone());
    }
}
