//! Resizes a running pod in place: has the desired resources allocated, and gives the containers the allocated ones.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, PodStatus};
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::super::allocations::{ResizeConditions, record_events};
use super::super::resources::{Allocation, Budget, Sizes, requests, resizable};
use super::super::state::Phase;
use super::super::status::has_ended;
use super::super::{adjust, lifecycle, limits};
use super::{RETRY, Wake, Worker, container_of, grace};
use crate::error::PathError;
use crate::events::Kind;
use crate::runtime::PodChange;
use crate::shim::spec::PodLimits;
use crate::spec;

/// Name of the record, in the pod's directory.
const FILE: &str = "resources.json";
/// Name that a record gets that cannot be read.
const DAMAGED: &str = "resources.json.damaged";

/// The record about the resources of a pod, which one agent leaves for the next.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Resources {
    pub(super) allocated: Allocation,
    /// The resources of containers that do not run with the allocated ones yet, by container name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) held: BTreeMap<String, Budget>,
    /// Containers that are stopped because their resize requires a restart: container IDs by name, until they run again.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    restarting: BTreeMap<String, String>,
}

impl Resources {
    /// Reads the record of a pod from its directory; `None` if no agent has written one.
    ///
    /// # Errors
    /// The record cannot be read. It was put aside, so that its content can be looked at and the next one can be written.
    fn read(directory: &Path) -> Result<Option<Self>, PathError> {
        let path = directory.join(FILE);
        match spec::read(&path) {
            Ok(record) => Ok(Some(record)),
            Err(error) if error.source.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => {
                if let Err(problem) = std::fs::rename(&path, directory.join(DAMAGED)) {
                    tracing::warn!(path = %path.display(), error = %problem, "a damaged record was not put aside");
                }
                Err(error)
            }
        }
    }
}

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

    /// Adds the pod to the allocations, with the resources that an earlier agent has recorded, or else the desired ones. Returns
    /// the resources of containers that do not run with the allocated ones yet.
    pub(super) fn admit(
        &mut self,
        pod: &Arc<Pod>,
        status: &PodStatus,
        resizes: ResizeConditions,
    ) -> BTreeMap<String, Budget> {
        let over = has_ended(pod);
        let known = match over || self.node.pretends() {
            true => None,
            false => self.recorded_resources(pod, status),
        };
        let known = known.unwrap_or_else(|| Resources {
            allocated: Allocation::of(pod),
            ..Resources::default()
        });
        let reserved = match over {
            true => Sizes::default(),
            false => requests(&known.allocated.applied_to(pod), &known.held),
        };
        // A container of a pod that is being deleted is not started again.
        if pod.metadata.deletion_timestamp.is_none() {
            self.restarting = known.restarting;
        }
        let allocations = &self.node.allocations;
        allocations.admit(pod, known.allocated, reserved, resizes, &self.news);
        known.held
    }

    /// What an earlier agent has recorded. If that is damaged, it is reported by an event, and the resources in the pod's status are
    /// used: the desired resources may not have been granted.
    fn recorded_resources(&mut self, pod: &Pod, status: &PodStatus) -> Option<Resources> {
        let directory = self.node.pod_dir(&pod.uid().unwrap_or_default());
        match Resources::read(&directory) {
            Ok(record) => {
                self.resources.clone_from(&record);
                record
            }
            Err(error) => {
                tracing::warn!(pod = pod.name_any(), %error, "the record of a pod's resources is damaged");
                let message = format!(
                    "The record of allocated resources is damaged and was renamed to {DAMAGED}, those in the status of the pod are used: {}",
                    error.source
                );
                let events = &self.node.events;
                events.pod(pod, None, Kind::Warning, "ResourcesRecordDamaged", message);
                Some(Resources {
                    allocated: Allocation::reported(pod, status),
                    ..Resources::default()
                })
            }
        }
    }

    /// Takes over the resources of containers that an earlier agent has started.
    pub(super) fn adopt_resources(&self, pod: &Arc<Pod>, held: &BTreeMap<String, Budget>) {
        let pod = self.node.allocations.allocated(pod);
        for (name, state) in self.containers.lock().iter_mut() {
            if let Some(running) = state.running()
                && let Some(container) = container_of(&pod, name)
            {
                // One that was restarted since the record was written has the allocated ones.
                let before = self.restarting.get(name);
                let same = before.is_none_or(|id| *id == running.id);
                let held = held.get(name).copied().filter(|_| same);
                state.applied = Some(held.unwrap_or_else(|| Budget::of(&pod, &container)));
            }
        }
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
            if let Err(error) = recorded {
                return self.retry(pod, error.to_string());
            }
            if let Some(limits) = of_pod {
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
            self.settle(pod, &changes);
            self.stop_for_restart(pod);
            return None;
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

    /// Stops the containers that are to be restarted, without waiting: the other containers go on. Each is started again as soon
    /// as it has ended. This goes on with what an earlier agent began.
    fn stop_for_restart(&mut self, pod: &Pod) {
        let due: Vec<(String, String)> = {
            let containers = self.containers.lock();
            let marked = self.restarting.iter().filter(|(name, id)| {
                let running = containers.get(*name).and_then(|state| state.running());
                running.is_some_and(|it| it.id == **id) && !self.stopping.contains(*id)
            });
            marked
                .map(|(name, id)| (name.clone(), id.clone()))
                .collect()
        };
        for (name, id) in due {
            let Some(container) = container_of(pod, &name) else {
                continue;
            };
            let message = format!("Container {name} resize requires restart");
            let events = &self.node.events;
            events.pod(pod, Some(&name), Kind::Normal, "Killing", message);
            self.stopping.insert(id.clone());
            while self.stops.try_join_next().is_some() {}
            let (node, pod) = (Arc::clone(&self.node), pod.clone());
            self.stops.spawn(async move {
                lifecycle::stop(&node, &pod, &container, &id, grace(&pod)).await;
            });
        }
    }

    /// Forgets the restarts that are complete: the container has been started again.
    fn forget_restarts(&mut self) {
        let containers = self.containers.lock();
        self.restarting.retain(|name, id| {
            match containers.get(name).map(|state| &state.phase) {
                Some(Phase::Running(running)) => running.id == *id,
                Some(Phase::Waiting { .. }) => true,
                // The program could not be started, or has ended again: its restart policy decides.
                Some(Phase::Terminated(_)) | None => false,
            }
        });
        let restarting = &self.restarting;
        self.stopping
            .retain(|id| restarting.values().any(|marked| marked == id));
    }

    /// Writes the record for the next agent, if it has changed. `held` are the resources of containers that do not run with the
    /// allocated ones yet.
    fn record_resources(
        &mut self,
        pod: &Pod,
        held: &BTreeMap<String, Budget>,
    ) -> Result<(), PathError> {
        // Simulated containers end with the agent.
        if self.node.pretends() {
            return Ok(());
        }
        let record = Resources {
            allocated: Allocation::of(pod),
            held: held.clone(),
            restarting: self.restarting.clone(),
        };
        if self.resources.as_ref() == Some(&record) {
            return Ok(());
        }
        let directory = self.node.pod_dir(&pod.uid().unwrap_or_default());
        spec::write(&directory.join(FILE), &record)?;
        self.resources = Some(record);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_next_agent_knows_what_was_allocated() {
        let directory = tempfile::tempdir().expect("a directory");
        let read = || Resources::read(directory.path());
        assert_eq!(read().expect("no record"), None);
        let pod = json!({"spec": {"containers": [
            {"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}}]}});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let held = Budget {
            cpu_request: 7,
            ..Budget::default()
        };
        let record = Resources {
            allocated: Allocation::of(&pod),
            held: [("c".to_owned(), held)].into(),
            restarting: [("c".to_owned(), "id".to_owned())].into(),
        };
        spec::write(&directory.path().join(FILE), &record).expect("a record");
        assert_eq!(read().expect("a record"), Some(record));
    }

    #[test]
    fn a_damaged_record_is_put_aside() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join(FILE);
        std::fs::write(&file, "{").expect("a file");
        let error = Resources::read(directory.path()).expect_err("an error");
        assert_eq!(error.path, file);
        let kept = std::fs::read_to_string(directory.path().join(DAMAGED));
        assert_eq!(kept.expect("a file"), "{");
        assert_eq!(Resources::read(directory.path()).expect("no record"), None);
    }
}
