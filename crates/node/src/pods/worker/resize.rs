//! Resizes a running pod in place: has the desired resources allocated, and gives the containers the allocated ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;
use tokio::time::Instant;

use super::super::allocations::record_events;
use super::super::resources::{Budget, requests, resizable};
use super::super::status::has_ended;
use super::super::{adjust, limits};
use super::{RETRY, Wake, Worker};
use crate::runtime::PodChange;
use crate::shim::spec::PodLimits;

mod record;
mod restarts;

pub(super) use record::Resources;

/// The resources that containers are to get, by container name.
pub(super) type Wanted = BTreeMap<String, Budget>;

/// A container that does not run with the allocated resources.
struct Change {
    container: Container,
    id: String,
    now: Budget,
    wanted: Budget,
}

/// The resources that containers have until they are resized, by container name.
fn held(changes: &[Change]) -> BTreeMap<String, Budget> {
    let held = changes.iter().map(|it| (it.container.name.clone(), it.now));
    held.collect()
}

impl Worker {
    /// The pod with the allocated resources in place of the desired ones: what is to run.
    pub(super) fn allocated(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        let allocations = &self.node.allocations;
        // A pod that has ended is not resized, and needs nothing.
        if has_ended(pod) {
            return Arc::clone(pod);
        }
        // What is left for a resize is known only when all pods of the node are known.
        if !self.node.synced.initialized() {
            return allocations.allocated(pod);
        }
        let (pod, events) = allocations.update(pod);
        record_events(&self.node.events, events);
        pod
    }

    /// The running containers that do not have the allocated resources.
    fn changes(&self, pod: &Pod) -> Vec<Change> {
        let containers = self.containers.lock();
        let changes = resizable(pod).filter_map(|container| {
            let state = containers.get(&container.name)?;
            let (id, now) = (state.running()?.id.clone(), state.applied?);
            let wanted = Budget::of(pod, container);
            (now != wanted).then(|| Change {
                container: container.clone(),
                id,
                now,
                wanted,
            })
        });
        changes.collect()
    }

    /// Gives the containers the allocated resources: in place, or by a restart. Returns when to try again after an error.
    pub(super) async fn resize(&mut self, pod: &Pod) -> Wake {
        let changes = self.changes(pod);
        self.forget_restarts();
        let held_now = held(&changes);
        let recorded = self.record_resources(pod, &held_now);
        let of_pod = self.pod_limits_to_set(pod);
        if changes.is_empty() {
            return match recorded {
                Ok(()) => self.complete(pod, of_pod).await,
                Err(error) => self.retry(pod, error.to_string()),
            };
        }
        self.settle(pod, &changes);
        let wanted: Wanted = changes
            .iter()
            .map(|it| (it.container.name.clone(), it.wanted))
            .collect();
        if let Some((at, failed)) = &self.failed_resize
            && *failed == wanted
            && *at > Instant::now()
        {
            return Some(*at);
        }
        self.failed_resize = None;
        if let Err(error) = recorded {
            return self.fail(pod, error.to_string(), wanted);
        }
        let (restarts, mut updates): (Vec<_>, Vec<_>) = changes
            .into_iter()
            .partition(|it| it.now.needs_restart(&it.wanted, &it.container));
        let before = self.restarting.clone();
        let no_restarts = restarts.is_empty();
        let restarts = restarts.into_iter().map(|it| (it.container.name, it.id));
        self.restarting.extend(restarts);
        // Recorded before a container can end: the next agent has to start it again, whatever its restart policy says.
        if let Err(error) = self.record_resources(pod, &held_now) {
            self.restarting = before;
            return self.fail(pod, error.to_string(), wanted);
        }
        self.stop_for_restart(pod);
        // Decreases come first: another container may get the memory that is released.
        updates.sort_by_key(|it| it.wanted.memory_limit > it.now.memory_limit);
        let mut result = self.check_memory(&updates).await;
        if let Some(limits) = of_pod.filter(|_| result.is_ok()) {
            result = self.update_pod(pod, limits, PodChange::Raise).await;
        }
        for change in &updates {
            if result.is_ok() {
                result = self.update(pod, change).await;
            }
        }
        // A container that is being restarted still has what it had.
        if let Some(limits) = of_pod.filter(|_| result.is_ok() && no_restarts) {
            result = self.update_pod(pod, limits, PodChange::All).await;
        }
        let left = self.changes(pod);
        if let Err(error) = self.record_resources(pod, &held(&left)) {
            // The next agent would repeat the updates, which is harmless.
            tracing::warn!(pod = pod.name_any(), %error, "resources were not recorded");
        }
        match result {
            Ok(()) => {
                self.settle(pod, &left);
                None
            }
            Err(error) => self.fail(pod, error, wanted),
        }
    }

    /// Gives the pod as a whole its limits, all containers having theirs. Returns when to try again after an error.
    async fn complete(&mut self, pod: &Pod, limits: Option<PodLimits>) -> Wake {
        if let Some(limits) = limits {
            // A failure is not repeated at every event of the pod.
            if let Some((at, failed)) = self.failed_pod_limits
                && failed == limits
                && at > Instant::now()
            {
                return Some(at);
            }
            if let Err(error) = self.update_pod(pod, limits, PodChange::All).await {
                let wake = self.retry(pod, error);
                self.failed_pod_limits = wake.map(|at| (at, limits));
                return wake;
            }
        }
        self.settle(pod, &[]);
        self.stop_for_restart(pod);
        None
    }

    /// Reports an error of the resize, and delays the next attempt to give the containers the same resources.
    fn fail(&mut self, pod: &Pod, error: String, wanted: Wanted) -> Wake {
        let events = self.node.allocations.fail(pod, &error);
        record_events(&self.node.events, events);
        let at = Instant::now() + RETRY.1;
        self.failed_resize = Some((at, wanted));
        Some(at)
    }

    /// Delays the next attempt to record resources that the containers have already, or to limit the pod as a whole. If that is
    /// part of a resize, it is not complete.
    fn retry(&mut self, pod: &Pod, error: String) -> Wake {
        tracing::warn!(
            pod = pod.name_any(),
            error,
            "resources were not recorded or limited"
        );
        let uid = pod.uid().unwrap_or_default();
        if self.node.allocations.resizes(&uid).progress.is_some() {
            return self.fail(pod, error, Wanted::new());
        }
        Some(Instant::now() + RETRY.1)
    }

    /// The limits of the pod as a whole, if other ones may be in force and a container runs. The first container of a pod is
    /// started with them.
    fn pod_limits_to_set(&self, pod: &Pod) -> Option<PodLimits> {
        let limits = limits::of_pod(pod, self.node.config.pod_pids_limit);
        let states = self.containers.lock();
        let runs = states.values().any(|state| state.running().is_some());
        (runs && self.pod_limits != Some(limits)).then_some(limits)
    }

    /// Changes the limits of the pod as a whole.
    async fn update_pod(
        &mut self,
        pod: &Pod,
        limits: PodLimits,
        which: PodChange,
    ) -> Result<(), String> {
        let uid = pod.uid().unwrap_or_default();
        let nri = self.node.nri.as_ref().filter(|_| which == PodChange::All);
        let _sync_block = adjust::block_plugin_sync(nri).await;
        if let Some(nri) = nri {
            nri.update_pod(&uid, limits).await?;
        }
        let updated = self.node.runtime.update_pod(&uid, limits, which).await;
        updated.map_err(|error| error.to_string())?;
        if let Some(nri) = nri {
            nri.updated_pod(&uid, limits).await;
        }
        if which == PodChange::All {
            self.pod_limits = Some(limits);
        }
        Ok(())
    }

    /// Reports the progress of the resize to the allocations.
    fn settle(&self, pod: &Pod, changes: &[Change]) {
        let reserved = requests(pod, &held(changes));
        let allocations = &self.node.allocations;
        let events = allocations.settle(pod, changes.is_empty(), reserved);
        record_events(&self.node.events, events);
    }

    /// Refuses memory limits below the current usage: the kernel would kill the container.
    async fn check_memory(&self, updates: &[Change]) -> Result<(), String> {
        let runtime = &self.node.runtime;
        let less = |it: &Change| it.wanted.has_less_memory(&it.now);
        if !updates.iter().any(less) || !runtime.enforces_limits() {
            return Ok(());
        }
        let measured = runtime.usage().await;
        let measured = measured.map_err(|error| format!("unable to read memory usage: {error}"))?;
        let errors = updates.iter().filter(|it| less(it)).filter_map(|it| {
            let (name, limit) = (&it.container.name, it.wanted.memory_limit);
            let used = measured.iter().find(|found| found.id == it.id);
            match used.and_then(|found| found.figures.memory) {
                None => Some(format!("missing container {name:?} memory usage")),
                Some(used) if used >= limit.unsigned_abs() => Some(format!(
                    "attempting to set container {name:?} memory limit ({limit}) below current usage ({used})"
                )),
                Some(_) => None,
            }
        });
        let errors: Vec<String> = errors.collect();
        match errors.as_slice() {
            [] => Ok(()),
            [error] => Err(format!("cannot decrease memory limits: {error}")),
            _ => Err(format!(
                "cannot decrease memory limits: [{}]",
                errors.join(", ")
            )),
        }
    }

    async fn update(&self, pod: &Pod, change: &Change) -> Result<(), String> {
        let mut limits = limits::of(pod, &change.container, self.node.memory());
        let nri = self.node.nri.as_ref();
        let _sync_block = adjust::block_plugin_sync(nri).await;
        if let Some(nri) = nri {
            limits = nri.update(&change.id, limits).await?;
        }
        let updated = self.node.runtime.update(&change.id, limits.clone());
        let given = updated.await.map_err(|error| error.to_string())?;
        if let Some(nri) = nri {
            nri.updated(&change.id, &limits).await;
        }
        let mut containers = self.containers.lock();
        if let Some(state) = containers.get_mut(&change.container.name) {
            state.applied = Some(change.wanted);
            state.given = given;
        }
        Ok(())
    }
}
