//! Evicts a pod when it uses more of the node's disk than it may, or when the node has to reclaim what it uses, as a kubelet does.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::super::storage::{self, Excess, Storage};
use super::super::{EVICTED, Evicted, Origin, is_critical};
use super::{Wake, Worker, grace};
use crate::disk::Used;
use crate::events::Kind;

/// Period of the check, as in a kubelet.
const PERIOD: Duration = Duration::from_secs(10);
/// What containers get to end.
const GRACE: Duration = Duration::from_secs(1);
/// Pods are measured one after the other: each measurement takes descriptors and disk I/O.
static LOOKS: Semaphore = Semaphore::const_new(1);

impl Worker {
    /// Begins the eviction of the pod, which the node has requested: from now on it has failed.
    pub(super) fn evict(&mut self, pod: &Pod, evicted: &Evicted) {
        if self.eviction.is_some() {
            return;
        }
        if self.failed.is_none() {
            let events = &self.node.events;
            let message = evicted.message.clone();
            events.pod(pod, None, Kind::Warning, EVICTED, message.clone());
            self.failed = Some((EVICTED, message));
            self.disrupted = true;
        }
        self.eviction = Some((evicted.grace, evicted.ended.clone().drop_guard()));
    }

    /// What containers get to end: the pod's grace period, or less if the pod is evicted.
    pub(super) fn grace(&self, pod: &Pod) -> Duration {
        self.shorten(grace(pod))
    }

    /// A grace period, which is shorter if the pod is evicted.
    pub(super) fn shorten(&self, grace: Duration) -> Duration {
        let evicted = self.eviction.as_ref().map(|(grace, _)| *grace);
        evicted.map_or(grace, |evicted| evicted.min(grace))
    }

    /// Evicts the pod if it uses more storage than it may. Returns when to check again. Critical pods are not evicted.
    pub(super) async fn keep_storage_limits(&mut self, pod: &Pod) -> Wake {
        let evictable = self.origin == Origin::Api && !is_critical(pod) && self.failed.is_none();
        if !evictable || !self.ready || self.node.pretends() || !storage::is_limited(pod) {
            return None;
        }
        let now = Instant::now();
        if let Some(at) = self.sizes.filter(|at| *at > now) {
            return Some(at);
        }
        let next = now + PERIOD.min(self.node.config.sync_frequency);
        self.sizes = Some(next);
        let roots = self.roots(pod).await;
        let uid = pod.uid().unwrap_or_default();
        let (root, directory) = (self.node.config.root_dir.clone(), self.node.pod_dir(&uid));
        let looked_at = pod.clone();
        let Ok(_one) = LOOKS.acquire().await else {
            return Some(next);
        };
        let look = move || {
            let used = Storage::measure(&looked_at, &root, &directory);
            storage::excess(&looked_at, &used, &roots)
        };
        // A failed measurement is repeated.
        let found = tokio::task::spawn_blocking(look).await.ok().flatten();
        let Some(Excess { signal, message }) = found else {
            return Some(next);
        };
        self.node.claims.measures().evicted(signal);
        let events = &self.node.events;
        events.pod(pod, None, Kind::Warning, EVICTED, message.clone());
        self.stop_all(pod, GRACE).await;
        self.failed = Some((EVICTED, message));
        None
    }

    /// What containers have written to their root directories, by their names. Those that the agent makes itself are limited by
    /// the kernel, and hold a copy of the whole image where they are on a disk.
    async fn roots(&self, pod: &Pod) -> BTreeMap<String, Used> {
        if self.node.runtime.complete().is_none() {
            return BTreeMap::new();
        }
        let uid = pod.uid().unwrap_or_default();
        let written = self.node.runtime.written(Some(&uid)).await;
        let written = written.unwrap_or_else(|error| {
            tracing::debug!(pod = pod.name_any(), %error, "containers were not measured");
            Vec::new()
        });
        let written = written.into_iter();
        written.map(|it| (it.container, it.used)).collect()
    }
}
