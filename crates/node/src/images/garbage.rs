//! Removing images that no container uses when the disk is full, by the kubelet's rules.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use allot_images::collect::{Collectable, Collected, Collector, Policy, Usage};
use allot_images::{Result, Store};
use tokio::sync::{mpsc, oneshot};

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

/// A request to remove all unused images, which is answered when that is done.
pub(crate) type Request = oneshot::Sender<()>;

/// Runs the garbage collection of images every `period`, and at each request.
pub(crate) async fn collect(
    images: Arc<dyn Garbage>,
    policy: Policy,
    period: Duration,
    mut requests: mpsc::Receiver<Request>,
    events: Recorder,
    node: String,
) {
    let mut collector = match Collector::new(policy, Instant::now()) {
        Ok(collector) => collector,
        Err(error) => {
            tracing::error!(%error, "images are not collected");
            return std::future::pending().await;
        }
    };
    loop {
        let request = tokio::select! {
            () = tokio::time::sleep(period) => None,
            Some(request) = requests.recv() => Some(request),
        };
        let images = Arc::clone(&images);
        let all = request.is_some();
        let work = move || {
            let collected = images.in_use().and_then(|in_use| {
                let usage = || images.usage();
                match all {
                    true => collector.collect_unused(&*images, &in_use, Instant::now()),
                    false => collector.collect(&*images, &in_use, &usage, Instant::now()),
                }
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
        if let Some(request) = request {
            // An agent that is about to end does not wait for it.
            let _ = request.send(());
        }
    }
}

fn record_event(collected: &Collected, events: &Recorder, node: &str) {
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
