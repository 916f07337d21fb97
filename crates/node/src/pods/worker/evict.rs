//! Evicts a pod when an `emptyDir` volume exceeds its size limit, as a kubelet does.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::super::{Origin, volumes};
use super::{Wake, Worker};
use crate::events::Kind;

/// Period of the check, as in a kubelet.
const PERIOD: Duration = Duration::from_secs(10);
/// What containers get to end.
const GRACE: Duration = Duration::from_secs(1);
/// Volumes are measured one after the other: each measurement takes descriptors and disk I/O.
static LOOKS: Semaphore = Semaphore::const_new(1);

impl Worker {
    /// Evicts the pod if one of its volumes exceeds its limit. Returns when to check again. Static pods are critical to their
    /// node, and are not evicted.
    pub(super) async fn keep_size_limits(&mut self, pod: &Pod) -> Wake {
        let evictable = self.origin == Origin::Api && self.failed.is_none();
        if !evictable || !self.ready || !volumes::has_size_limits(pod) {
            return None;
        }
        let now = Instant::now();
        if let Some(at) = self.sizes.filter(|at| *at > now) {
            return Some(at);
        }
        let next = now + PERIOD.min(self.node.config.sync_frequency);
        self.sizes = Some(next);
        let directory = self.node.pod_dir(&pod.uid().unwrap_or_default());
        let looked_at = pod.clone();
        let Ok(_one) = LOOKS.acquire().await else {
            return Some(next);
        };
        let look = move || volumes::too_large(&looked_at, &directory);
        // A failed measurement is repeated.
        let found = tokio::task::spawn_blocking(look).await.ok().flatten();
        let Some(message) = found else {
            return Some(next);
        };
        let events = &self.node.events;
        events.pod(pod, None, Kind::Warning, "Evicted", message.clone());
        self.stop_all(pod, GRACE).await;
        self.failed = Some(("Evicted", message));
        None
    }
}
