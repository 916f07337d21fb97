//! Metrics of the queue: which event moved pods to which part, and which plugins reject pods.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::SubQueue;
use crate::framework::Plugin;
use crate::pod::{PodInfo, scheduler_name};

/// Pods that moved to a part of the queue because of an event: (event, part), both with upstream's names.
pub type Moved = FxHashMap<(&'static str, &'static str), u64>;

/// Pods that a plugin rejected, by profile.
pub type Rejected = FxHashMap<(Plugin, Arc<str>), usize>;

#[derive(Debug, Default)]
pub(super) struct Moves {
    moved: Moved,
    rejected: Rejected,
    /// Whether the rejections changed since the last call.
    changed: bool,
}

impl Moves {
    pub(super) fn record_incoming(&mut self, event: &'static str, place: SubQueue) {
        let part = match place {
            SubQueue::Active => "active",
            SubQueue::Backoff { .. } => "backoff",
            SubQueue::Unschedulable | SubQueue::Gated(_) => "unschedulable",
        };
        *self.moved.entry((event, part)).or_default() += 1;
    }

    pub(super) fn rejected(&mut self, pod: &PodInfo, plugin: Plugin) {
        let key = (plugin, scheduler_name(&pod.pod).into());
        *self.rejected.entry(key).or_default() += 1;
        self.changed = true;
    }

    pub(super) fn left(&mut self, pod: &PodInfo, plugin: Plugin) {
        let key = (plugin, scheduler_name(&pod.pod).into());
        if let Some(count) = self.rejected.get_mut(&key) {
            *count = count.saturating_sub(1);
        }
        self.changed = true;
    }

    pub(super) fn take(&mut self) -> (Moved, Option<&Rejected>) {
        let changed = std::mem::take(&mut self.changed);
        let rejected = changed.then_some(&self.rejected);
        (std::mem::take(&mut self.moved), rejected)
    }
}
