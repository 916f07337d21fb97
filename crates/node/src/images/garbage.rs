//! Removing images that no container uses when the disk is full, by the kubelet's rules.

use std::sync::Arc;
use std::time::{Duration, Instant};

use allot_images::collect::{Collected, Collector, Policy, Usage};
use k8s_openapi::api::core::v1::Node;

use super::Images;
use crate::events::{Kind, Recorder};

/// Runs the garbage collection of images every `period`.
pub(crate) async fn collect(
    images: Arc<Images>,
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
        let store = images.store().clone();
        let work = move || {
            let collected = store.in_use().and_then(|in_use| {
                let usage = || Usage::of(store.root());
                collector.collect(&store, &in_use, &usage, Instant::now())
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
