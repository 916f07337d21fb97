//! The termination of a pod: deletion, deadline, and cleanup.

use std::sync::Arc;
use std::time::Duration;

use allot_client::delete;
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::{Api, ResourceExt};
use tokio::time::Instant;

use super::super::state::ContainerState;
use super::super::{Node, Origin, lifecycle, remove_tree, volumes};
use super::{FORCED_GRACE, RETRY, Wake, Worker, container_of};
use crate::error::api_message;
use crate::events::Kind;
use crate::rules::{self, is_sidecar};

impl Worker {
    /// When the pod has run for as long as it may.
    pub(super) fn deadline(&self, pod: &Pod) -> Option<Timestamp> {
        let seconds = pod.spec.as_ref()?.active_deadline_seconds?;
        self.start
            .checked_add(jiff::Span::new().try_seconds(seconds).ok()?)
            .ok()
    }

    /// Ends a pod that has run for as long as it may. Returns when that will be.
    pub(super) async fn keep_deadline(&mut self, pod: &Pod) -> Wake {
        const EXCEEDED: (&str, &str) = (
            "DeadlineExceeded",
            "Pod was active on the node longer than the specified deadline",
        );
        let left = self.deadline(pod)?.duration_since(Timestamp::now());
        if let Ok(left) = Duration::try_from(left)
            && !left.is_zero()
        {
            return Some(Instant::now() + left);
        }
        if self.failed.is_none() {
            let events = &self.node.events;
            events.pod(pod, None, Kind::Normal, EXCEEDED.0, EXCEEDED.1);
            self.stop_all(pod, self.grace(pod)).await;
            self.failed = Some((EXCEEDED.0, EXCEEDED.1.to_owned()));
        }
        None
    }

    /// Stops all running containers; a further update of the pod can only shorten the grace period.
    pub(super) async fn stop_all(&mut self, pod: &Pod, grace: Duration) {
        // A container that was stopped for a resize is not started again.
        self.restarting.clear();
        self.collect_exits(pod);
        self.probes.clear();
        let running: Vec<(Container, String)> = {
            let containers = self.containers.lock();
            let running = containers.iter().filter_map(|(name, state)| {
                let container = container_of(pod, name).unwrap_or_else(|| Container {
                    name: name.clone(),
                    ..Container::default()
                });
                Some((container, state.running()?.id.clone()))
            });
            running.collect()
        };
        for (container, _) in &running {
            let name = &container.name;
            let message = format!("Stopping container {name}");
            self.node
                .events
                .pod(pod, Some(name), Kind::Normal, "Killing", message);
        }
        let node = Arc::clone(&self.node);
        let at_once = |grace: Duration| {
            join_all(
                running
                    .iter()
                    .map(|(_, id)| node.runtime.stop(id.clone(), grace)),
            )
        };
        let mut polite = std::pin::pin!(in_order(&node, pod, &running, grace));
        let begun = Instant::now();
        let mut news = false;
        loop {
            tokio::select! {
                () = &mut polite => break,
                changed = self.updates.changed() => {
                    news = true;
                    let update = self.updates.borrow_and_update().clone();
                    let now = update.pod.metadata.deletion_grace_period_seconds;
                    let now = now.map(|now| Duration::from_secs(now.max(0) as u64));
                    let evicted = update.evicted.as_ref().map(|evicted| evicted.grace);
                    let now = now.into_iter().chain(evicted).min();
                    // That a manifest is gone is why its pod is stopped, and nothing can shorten the time.
                    let short = self.origin == Origin::Api
                        && (update.deleted || now.is_some_and(|now| now < grace));
                    if changed.is_err() || short {
                        let left = now.unwrap_or_default().saturating_sub(begun.elapsed());
                        at_once(if update.deleted { Duration::ZERO } else { left }).await;
                        break;
                    }
                }
            }
        }
        if news {
            // It was read only for its grace period.
            self.updates.mark_changed();
        }
        self.collect_exits(pod);
        if let Some(complete) = self.node.runtime.complete() {
            let uid = pod.uid().unwrap_or_default();
            tokio::select! {
                () = complete.close(&uid) => {}
                () = self.node.shutdown.cancelled() => {}
            }
        }
    }

    /// Takes the pod's network away; retries until it succeeds, because its addresses must not be used by the next pod before.
    async fn close_network(&self, pod: &Pod) {
        let uid = pod.uid().unwrap_or_default();
        self.node.certificates.forget(&uid);
        if let Some(nri) = &self.node.nri {
            tokio::select! {
                () = nri.stop_pod(&uid) => {}
                () = self.node.shutdown.cancelled() => return,
            }
        }
        let directory = self.node.pod_dir(&uid);
        let mut delay = RETRY.0;
        loop {
            let detached = tokio::select! {
                detached = self.node.sandboxes.detach(&uid, &directory) => detached,
                () = self.node.shutdown.cancelled() => return,
            };
            let Err(error) = detached else { return };
            let error = error.to_string();
            let message = format!(
                "error killing pod: failed to \"KillPodSandbox\" for {uid:?} with KillPodSandboxError: {error:?}"
            );
            let events = &self.node.events;
            events.pod(pod, None, Kind::Warning, "FailedKillPod", message);
            if !self.pause(&mut delay, std::future::pending()).await {
                return;
            }
        }
    }

    /// Unprepares the claims; retries until it succeeds, because the devices must not be used by the next pod before.
    pub(super) async fn unprepare_claims(&self, pod: &Pod) {
        // Interfaces of claims are out of it when their driver is asked to put them back.
        self.close_network(pod).await;
        if self.node.shutdown.is_cancelled() {
            return;
        }
        let mut delay = RETRY.0;
        let claims = &self.node.claims;
        let uid = pod.uid().unwrap_or_default();
        let unprepare = async || {
            claims.recall(pod).await?;
            claims.unprepare(&uid).await
        };
        loop {
            let drivers = claims.drivers_changed();
            let Err(error) = unprepare().await else {
                return;
            };
            tracing::warn!(pod = pod.name_any(), %error, "claims are not unprepared yet");
            // Until then the pod is not over, and its author sees no more than that.
            self.node.events.pod(
                pod,
                None,
                Kind::Warning,
                "FailedUnprepareDynamicResources",
                format!("Failed to unprepare dynamic resources: {error}"),
            );
            if !self.pause(&mut delay, drivers).await {
                return;
            }
        }
    }

    /// Waits before the next attempt, and longer each time, or until there are news; false if the agent ends.
    async fn pause(&self, delay: &mut Duration, news: impl Future<Output = ()>) -> bool {
        tokio::select! {
            () = tokio::time::sleep(*delay) => {}
            () = news => {}
            () = self.node.shutdown.cancelled() => return false,
        }
        *delay = (*delay * 2).min(RETRY.1);
        true
    }

    /// Graceful termination: stop containers, unprepare claims, report, delete the object.
    pub(super) async fn terminate(&mut self, pod: &Pod) -> Wake {
        let grace = pod
            .metadata
            .deletion_grace_period_seconds
            .unwrap_or(30)
            .max(0);
        let grace = self.shorten(Duration::from_secs(grace as u64));
        self.stop_all(pod, grace).await;
        self.unprepare_claims(pod).await;
        self.eviction = None;
        if self.node.shutdown.is_cancelled() {
            return None;
        }
        self.ready = false;
        let failed = self.report(pod, true).await;
        if failed.is_some() {
            return failed;
        }
        // The answer is not used.
        let api: Api<kube::core::PartialObjectMeta<Pod>> = Api::namespaced(
            self.node.client.clone(),
            &pod.namespace().unwrap_or_default(),
        );
        let params = delete::by_uid_now(pod.uid());
        match api.delete(&pod.name_any(), &params).await {
            Ok(_) => None,
            Err(kube::Error::Api(status)) if status.code == 404 || status.code == 409 => None,
            Err(error) => {
                let error = api_message(&error);
                tracing::warn!(pod = pod.name_any(), error, "pod was not deleted");
                Some(Instant::now() + RETRY.0 * 2)
            }
        }
    }

    /// Removes the volumes of a pod that has ended: its object may stay for long, and what was in them is not needed any longer.
    pub(super) async fn remove_volumes(&mut self, pod: &Pod) {
        // The agent stops while something may still run. Simulated pods write nothing.
        if self.node.shutdown.is_cancelled() || self.node.pretends() {
            return;
        }
        let directory = self.node.pod_dir(&pod.uid().unwrap_or_default());
        volumes::unmount_all(&directory);
        remove_tree(directory.join(volumes::DIRECTORY)).await;
        self.volumes = None;
    }

    pub(super) async fn clean_up(&self, pod: &Pod) {
        if let Some(images) = &self.node.images {
            images.forget(pod);
        }
        if let Some(delegated) = &self.node.delegated {
            delegated.forget(pod);
        }
        let ended: Vec<String> = {
            let containers = self.containers.lock();
            let ids = containers.values().flat_map(ContainerState::ended_ids);
            ids.map(str::to_owned).collect()
        };
        self.node.remove_containers(ended).await;
        let uid = pod.uid().unwrap_or_default();
        if let Some(nri) = &self.node.nri {
            nri.forget_pod(&uid).await;
        }
        if let Some(complete) = self.node.runtime.complete() {
            complete.forget(&uid);
        }
        self.node.sandboxes.forget(&uid);
        self.node.runtime.forget_pod(&uid).await;
        volumes::unmount_all(&self.node.pod_dir(&uid));
        let logs = rules::log_directory(&self.node.config.root_dir, pod);
        for directory in [self.node.pod_dir(&uid), logs] {
            remove_tree(directory).await;
        }
    }
}

/// Ends containers: sidecars when all others have ended, the last one that was started first.
async fn in_order(node: &Node, pod: &Pod, running: &[(Container, String)], grace: Duration) {
    let begun = Instant::now();
    let (mut sidecars, others): (Vec<_>, Vec<_>) = running
        .iter()
        .partition(|(container, _)| is_sidecar(container));
    join_all(
        others
            .iter()
            .map(|(container, id)| lifecycle::stop(node, pod, container, id, grace)),
    )
    .await;
    let init = pod
        .spec
        .iter()
        .flat_map(|spec| spec.init_containers.iter().flatten());
    let order: Vec<&str> = init.map(|container| container.name.as_str()).collect();
    sidecars.sort_by_key(|(container, _)| order.iter().rposition(|name| *name == container.name));
    for (container, id) in sidecars.into_iter().rev() {
        let left = match grace.is_zero() {
            true => grace,
            false => grace.saturating_sub(begun.elapsed()).max(FORCED_GRACE),
        };
        lifecycle::stop(node, pod, container, id, left).await;
    }
}
